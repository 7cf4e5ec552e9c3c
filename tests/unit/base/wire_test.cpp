#include "lockstep/base/wire.hpp"

#include <limits>
#include <set>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "tests/support/harness/wire_reader.hpp"

using namespace lockstep;
using Catch::Contains;
using lockstep::test::WireReader;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// What reading all fields says; "" when they are fine.
std::string refusal(const std::string& bytes) {
  try {
    WireFields fields(bytes);
    for (WireField field; fields.next(field);) continue;
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("messages have the bytes that protocol buffers' specification prints", "[wire]") {
  CHECK(hex(WireMessage().number(1, 150).bytes()) == "089601");
  CHECK(hex(WireMessage().text(2, "testing").bytes()) == "120774657374696e67");
  CHECK(hex(WireMessage().message(3, WireMessage().number(1, 150)).bytes()) == "1a03089601");
}

TEST_CASE("each kind of field has its form on the wire", "[wire]") {
  CHECK(hex(WireMessage().number(1, 0).bytes()) == "0800");
  CHECK(hex(WireMessage().number(1, 127).number(1, 128).bytes()) == "087f088001");
  CHECK(hex(WireMessage().number(2, static_cast<std::uint64_t>(-2)).bytes()) ==
        "10feffffffffffffffff01");
  CHECK(hex(WireMessage().number(16, 1).bytes()) == "800101");
  CHECK(hex(WireMessage().real32(2, 1.5f).bytes()) == "150000c03f");
  CHECK(hex(WireMessage().real64(1, -2.0).bytes()) == "0900000000000000c0");
  CHECK(hex(WireMessage().text(1, "").bytes()) == "0a00");
}

TEST_CASE("a message is read back as it was written", "[wire]") {
  const std::string bytes("a\0\xff", 3);
  const WireMessage inner = WireMessage().text(1, bytes).real64(2, 0.1);
  const WireReader read(WireMessage()
                            .number(3, std::numeric_limits<std::uint64_t>::max())
                            .message(7, inner)
                            .message(7, inner)
                            .real32(500, 0.1f)
                            .bytes());
  CHECK(read.number(3) == std::numeric_limits<std::uint64_t>::max());
  CHECK(read.messages(7).size() == 2);
  CHECK(read.messages(7)[1].text(1) == bytes);
  CHECK(read.messages(7)[1].real64(2) == 0.1);
  CHECK(read.real32(500) == 0.1f);
}

TEST_CASE("a field's value is read as what it is, and as nothing else", "[wire]") {
  const std::string bytes = WireMessage().number(1, 300).text(2, "abc").real32(3, 1.5f).bytes();
  WireFields fields(bytes);
  WireField number, text, real, none;
  REQUIRE((fields.next(number) && fields.next(text) && fields.next(real) && !fields.next(none)));
  CHECK(number.as_number() == 300);
  CHECK(text.as_text() == "abc");
  CHECK(text.as_text().data() == bytes.data() + 5);
  CHECK(real.as_real32() == 1.5f);
  CHECK_THROWS_WITH(number.as_text(), "its field 1 is of another type");
  CHECK_THROWS_WITH(text.as_number(), "its field 2 is of another type");
  CHECK_THROWS_WITH(text.as_real32(), "its field 2 is of another type");
}

TEST_CASE("a message that ends within a field is an error, wherever it ends", "[wire]") {
  const std::string bytes =
      WireMessage().number(1, 300).text(200, "abc").real32(3, 1.5f).real64(4, 0.1).bytes();
  const std::set<std::size_t> ends = {0, 3, 9, 14, bytes.size()};
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    CAPTURE(length);
    const std::string error = refusal(bytes.substr(0, length));
    if (ends.contains(length))
      CHECK(error.empty());
    else
      CHECK_THAT(error, Contains("it is cut off"));
  }
  CHECK(refusal(bytes.substr(0, 8)) ==
        "it is cut off: its field 200 has 3 bytes, of which 2 are there");
}

TEST_CASE("bytes that are no field are an error", "[wire]") {
  using namespace std::string_literals;
  const std::string nines(9, '\xff');
  CHECK(refusal("\x08" + nines + "\x01").empty());
  CHECK(refusal("\x08" + nines + "\x02") == "it has a number of more than 64 bits");
  CHECK(refusal("\x08" + std::string(10, '\x80') + "\x00"s) ==
        "it has a number of more than ten bytes");
  // Longer than it need be, which some writers do to fill in a length later.
  CHECK(refusal("\x08\x81\x80\x00"s).empty());
  CHECK(refusal("\x0a" + nines + "\x01" + "abc") ==
        "it is cut off: its field 1 has 18446744073709551615 bytes, of which 3 are there");
  for (const char* type : {"\x0b", "\x0c", "\x0e", "\x0f"})
    CHECK_THAT(refusal(type + "abc"s), Contains("its field 1 is of a type"));
  CHECK(refusal("\x00\x01"s) == "it has a field 0, which no message has");
  CHECK(refusal("\x80\x80\x80\x80\x10\x01"s) == "it has a field 536870912, which no message has");
}

TEST_CASE("a text for readers of UTF-8 keeps what is UTF-8 and replaces other bytes", "[wire]") {
  CHECK(valid_utf8("caf\xC3\xA9 \"x\"\n") == "caf\xC3\xA9 \"x\"\n");
  CHECK(valid_utf8("caf\xE9/x") == "caf\xEF\xBF\xBD/x");
}
