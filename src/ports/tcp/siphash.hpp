#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep::tcp {

using Key = std::array<std::uint8_t, 16>;

/// SipHash-2-4 (Aumasson and Bernstein, 2012): a short message's tag, which cannot be made without
/// the key.
inline std::uint64_t siphash(const Key& key, std::string_view message) {
  static_assert(std::endian::native == std::endian::little);
  const auto word = [](const void* bytes, std::size_t count = 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, count);
    return value;
  };
  const std::uint64_t low = word(key.data()), high = word(key.data() + 8);
  std::uint64_t v0 = low ^ 0x736f6d6570736575, v1 = high ^ 0x646f72616e646f6d;
  std::uint64_t v2 = low ^ 0x6c7967656e657261, v3 = high ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](std::uint64_t value) {
    v3 ^= value;
    rounds(2);
    v0 ^= value;
  };
  std::size_t done = 0;
  for (; done + 8 <= message.size(); done += 8) absorb(word(message.data() + done));
  const std::uint64_t rest = word(message.data() + done, message.size() - done);
  absorb(rest | static_cast<std::uint64_t>(message.size()) << 56);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace lockstep::tcp
