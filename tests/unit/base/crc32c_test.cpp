#include "lockstep/base/crc32c.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/base/rng.hpp"

using namespace lockstep;

namespace {

std::vector<std::uint8_t> noise(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>(draw(7, 0, i, Draw::synth));
  }
  return bytes;
}

}  // namespace

TEST_CASE("CRC-32C gives the values that the standards print", "[crc32c]") {
  CHECK(crc32c("123456789", 9) == 0xE3069283);
  CHECK(crc32c("", 0) == 0);
  // RFC 3720, B.4.
  CHECK(crc32c(std::vector<std::uint8_t>(32, 0x00).data(), 32) == 0x8A9136AA);
  CHECK(crc32c(std::vector<std::uint8_t>(32, 0xFF).data(), 32) == 0x62A8AB43);
  std::vector<std::uint8_t> ascending(32);
  std::iota(ascending.begin(), ascending.end(), std::uint8_t{0});
  CHECK(crc32c(ascending.data(), 32) == 0x46DD794E);
  CHECK(crc32c_portable("123456789", 9) == 0xE3069283);
}

TEST_CASE("CRC-32C by instruction is CRC-32C by tables at every length and alignment", "[crc32c]") {
  const std::vector<std::uint8_t> bytes = noise(10000);
  for (std::size_t size = 0; size < 1000; ++size) {
    REQUIRE(crc32c(bytes.data(), size) == crc32c_portable(bytes.data(), size));
  }
  for (const std::size_t size :
       {1023, 1024, 1025, 1279, 1280, 1281, 3071, 3072, 3073, 3455, 3456, 6144, 9216, 9983}) {
    for (std::size_t start = 0; start < 17; ++start) {
      REQUIRE(crc32c(bytes.data() + start, size) == crc32c_portable(bytes.data() + start, size));
    }
  }
}

TEST_CASE("CRC-32C of a whole is CRC-32C of its parts, continued", "[crc32c]") {
  const std::vector<std::uint8_t> bytes = noise(5000);
  const std::uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (const std::size_t cut : {0, 1, 7, 8, 100, 1024, 3072, 4999, 5000}) {
    const std::uint32_t begun = crc32c(bytes.data(), cut);
    CHECK(crc32c(bytes.data() + cut, bytes.size() - cut, begun) == whole);
    CHECK(crc32c_portable(bytes.data() + cut, bytes.size() - cut, begun) == whole);
  }
}
