#include <catch2/catch.hpp>

#include "lockstep/base/count.hpp"
#include "lockstep/base/error.hpp"

using namespace lockstep;
using Catch::Contains;

TEST_CASE("a count is all of its text, in range", "[count]") {
  CHECK(parse_count("0", "x") == 0);
  CHECK(parse_count("010", "x") == 10);
  CHECK(parse_count("18446744073709551615", "x") == 18446744073709551615ull);
  CHECK(parse_count("7", "x", 7, 7) == 7);
}

TEST_CASE("what is no count is refused with its name and range", "[count]") {
  for (const char* text :
       {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "ten", "18446744073709551616"})
    CHECK_THROWS_WITH(parse_count(text, "--rows"), Contains("--rows: '" + std::string(text) +
                                                            "' is not a whole number from 0 on"));
  CHECK_THROWS_WITH(parse_count("0", "--rows", 1, 5), Contains("from 1 to 5"));
  CHECK_THROWS_WITH(parse_count("6", "--rows", 1, 5), Contains("'6'"));
}
