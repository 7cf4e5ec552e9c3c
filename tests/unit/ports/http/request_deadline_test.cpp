#include "ports/http/request_deadline.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;

TEST_CASE("bytes buy a client time, but never more than the longest ahead", "[http]") {
  http::Patience steady(0, 10), drip(0, 10), burst(0, 10);
  for (int second = 1; second <= 1000; ++second) {  // at the rate
    REQUIRE(steady.until_s() >= second);
    steady.came(100, 100, second);
  }
  int second = 1;
  for (; second < drip.until_s(); ++second) drip.came(1, 100, second);
  CHECK(second == 11);
  burst.came(1'000'000, 100, 3);
  CHECK(burst.until_s() == 13);
}
