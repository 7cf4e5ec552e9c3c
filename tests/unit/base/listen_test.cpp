#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"

using namespace lockstep;

TEST_CASE("an address to listen on is a port of this machine, or names its host", "[http]") {
  CHECK(parse_listen("9400", "k").host == "127.0.0.1");
  CHECK(parse_listen("9400", "k").port == 9400);
  CHECK(parse_listen("0.0.0.0:80", "k").host == "0.0.0.0");
  CHECK(parse_listen("[::1]:80", "k").host == "::1");
  CHECK(parse_listen("[::1]:80", "k").port == 80);
  for (const char* bad : {"", "x", ":", ":80", "::1:80", "127.0.0.1:", "127.0.0.1:65536", "0",
                          "[]:80", "80 ", "-1", "1:2:3"})
    CHECK_THROWS_WITH(parse_listen(bad, "metrics.listen"),
                      Catch::Matchers::StartsWith("metrics.listen: '"));
}
