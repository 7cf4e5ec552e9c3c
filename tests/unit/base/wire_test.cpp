#include "lockstep/base/wire.hpp"

#include <limits>

#include <catch2/catch.hpp>

#include "lockstep/base/text/utf8.hpp"
#include "tests/support/harness/wire_reader.hpp"

using namespace lockstep;
using lockstep::test::WireReader;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
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

TEST_CASE("a text for readers of UTF-8 keeps what is UTF-8 and replaces other bytes", "[wire]") {
  CHECK(valid_utf8("caf\xC3\xA9 \"x\"\n") == "caf\xC3\xA9 \"x\"\n");
  CHECK(valid_utf8("caf\xE9/x") == "caf\xEF\xBF\xBD/x");
}
