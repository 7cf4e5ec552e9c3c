#include <catch2/catch.hpp>

#include "model/formats/zip.hpp"
#include "tests/unit/model/formats/zip_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

const Members two = {{"a/one", "some bytes"}, {"two", std::string(5000, 'x') + "end"}};

/// What reading all members says.
std::string zip_refusal(const std::string& zip) {
  return error_of([&] {
    const ZipReader reader(zip);
    std::string buffer;
    for (const ZipMember& member : reader.members()) reader.read(member, buffer);
  });
}

void check_two(const std::string& zip) {
  const ZipReader reader(zip);
  REQUIRE(reader.members().size() == 2);
  std::string buffer;
  for (const auto& [name, bytes] : two) {
    const ZipMember* member = reader.find(name);
    REQUIRE(member != nullptr);
    CHECK(reader.read(*member, buffer) == bytes);
    CHECK(reader.begin(*member, 7) == bytes.substr(0, 7));
    CHECK(reader.begin(*member, 1 << 20) == bytes);
  }
  CHECK(reader.find("three") == nullptr);
}

}  // namespace

TEST_CASE("a zip's members come back: stored, deflated, with 64 bits, with a comment",
          "[formats]") {
  check_two(zip_file(two));
  check_two(zip_file(two, {.deflated = true}));
  check_two(zip_file(two, {.zip64 = true}));
  check_two(zip_file(two, {.deflated = true, .zip64 = true}, "PK\x05\x06 a comment"));
}

TEST_CASE("a written zip has each member at a multiple of 64 bytes, and a comment", "[formats]") {
  ZipWriter writer;
  writer.add(two[0].first, two[0].second);
  writer.add(two[1].first, two[1].second.substr(0, 99), two[1].second.substr(99));
  const std::string zip = std::move(writer).finish("a comment");
  check_two(zip);
  const ZipReader reader(zip);
  CHECK(reader.comment() == "a comment");
  for (const ZipMember& member : reader.members()) CHECK(member.offset % 64 == 0);
}

TEST_CASE("a zip that is cut off anywhere is an error", "[formats]") {
  for (const bool zip64 : {false, true}) {
    const std::string zip = zip_file(two, {.zip64 = zip64});
    for (std::size_t bytes = 0; bytes < zip.size(); ++bytes)
      CHECK(!zip_refusal(zip.substr(0, bytes)).empty());
  }
}

TEST_CASE("a damaged zip is an error that names the member", "[formats]") {
  CHECK(zip_refusal(zip_file(two, {.crc_change = 1})) ==
        "'a/one' is damaged: its CRC-32 does not fit");
  CHECK(zip_refusal(zip_file(two, {.size_change = 1})) == "'a/one' has two sizes");
  CHECK(zip_refusal(zip_file(two, {.deflated = true, .size_change = 1})) ==
        "'a/one' does not unpack to 11 bytes");
  CHECK(zip_refusal(zip_file(two, {.deflated = true, .size_change = 0xffffffff})) ==
        "'a/one' does not unpack to 9 bytes");
  CHECK(zip_refusal(zip_file(two, {.flags = 1})) == "'a/one' is encrypted");
  CHECK_THAT(zip_refusal(zip_file(two, {.method = 12})),
             Contains("'a/one' is packed by method 12"));
  CHECK(zip_refusal(zip_file({{"twice", "1"}, {"twice", "2"}})) == "its zip has 'twice' twice");
  const std::string zip = zip_file(two);
  CHECK_THAT(zip_refusal(replaced(zip, "PK\x03\x04", "PK\x03\x05")),
             Contains("is not where the zip's"));
  CHECK_THAT(zip_refusal(replaced(zip, "PK\x01\x02", "PK\x01\x03")),
             Contains("directory is damaged"));
  CHECK_THAT(zip_refusal("PK\x03\x04 and no more"), Contains("its directory is missing"));
}

TEST_CASE("a zip whose members share bytes is an error", "[formats]") {
  const std::string one_member = zip_file({{"same", "bytes"}});
  // Both entries of the directory lead to one member.
  const std::size_t directory = one_member.find("PK\x01\x02"), end = one_member.find("PK\x05\x06");
  const std::string entry = one_member.substr(directory, end - directory);
  const std::string both = one_member.substr(0, directory) + entry + entry + "PK\x05\x06" +
                           little(0) + little(std::uint16_t{2}) + little(std::uint16_t{2}) +
                           little(static_cast<std::uint32_t>(2 * entry.size())) +
                           little(static_cast<std::uint32_t>(directory)) + little(std::uint16_t{0});
  CHECK(zip_refusal(both) == "'same' and 'same' share bytes of the zip");
}

TEST_CASE("a zip that unpacks to far more than itself is an error before memory is taken",
          "[formats]") {
  const Members bomb = {{"bomb", std::string(8 << 20, '\0')}};
  const std::string zip = zip_file(bomb, {.deflated = true});
  REQUIRE(zip.size() < 20000);
  CHECK_THAT(zip_refusal(zip), Contains("'bomb' unpacks to 8388608 bytes, too many for a file of"));
}
