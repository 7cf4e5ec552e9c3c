#include "ports/http/request_deadline.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;

TEST_CASE("bytes buy a client time, but never more than the longest ahead", "[http]") {
  const http::Patiences limits{.silence_s = 10, .body_bytes_per_s = 100, .body_s = 1e6};
  http::Patience steady(0, limits), drip(0, limits), burst(0, limits);
  for (int second = 1; second <= 1000; ++second) {  // at the rate
    REQUIRE(steady.until_s() >= second);
    steady.came(100, second);
  }
  int second = 1;
  for (; second < drip.until_s(); ++second) drip.came(1, second);
  CHECK(second == 11);
  burst.came(1'000'000, 3);
  CHECK(burst.until_s() == 13);
}

TEST_CASE("no bytes buy a client time beyond the limit of a whole body", "[http]") {
  http::Patience fast(100, {.silence_s = 10, .body_bytes_per_s = 100, .body_s = 60});
  int second = 101;
  for (; second < fast.until_s(); ++second) fast.came(1'000'000, second);
  CHECK((second == 160 && fast.until_s() == 160));
}
