#include "lockstep/backend/winograd.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::backend;

TEST_CASE("the choice of Winograd's algorithm reads what it writes", "[winograd]") {
  for (const char* text : {"true", "false", "auto", "64x64@56x56:fdw", "16x32@7x9:w,64x64@8x8:fd"})
    CHECK(to_string(parse_winograd(text, "winograd")) == text);
  const Winograd list = parse_winograd("64x64@8x8:df,16x32@7x9:w", "winograd");
  CHECK(to_string(list) == "16x32@7x9:w,64x64@8x8:fd");
  CHECK(list.passes({64, 64, 8, 8}) == WinogradPasses{true, true, false});
  CHECK(list.passes({64, 64, 8, 9}) == WinogradPasses{});
  CHECK(parse_winograd("true", "").passes({1, 2, 3, 4}) == WinogradPasses{true, true, true});
  CHECK(parse_winograd("false", "").passes({1, 2, 3, 4}) == WinogradPasses{});
}

TEST_CASE("a list of convolutions with a mistake names the part that is wrong", "[winograd]") {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_winograd(text, "winograd");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  for (const char* wrong : {"yes", "64x64@56x56", "64x64@56x56:", "64x64@56x56:x", "64x64@56:f",
                            "64x0@56x56:f", "64x64@56x56:ff", "-1x64@56x56:f"}) {
    INFO(wrong);
    CHECK(error(std::string("16x16@8x8:f,") + wrong).find("'" + std::string(wrong) + "'") !=
          std::string::npos);
  }
  CHECK(error("16x16@8x8:f,16x16@8x8:d").find("'16x16@8x8:d'") != std::string::npos);
  CHECK(error("").find("winograd is empty") != std::string::npos);
}
