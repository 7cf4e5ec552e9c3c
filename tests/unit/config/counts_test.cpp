#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "tests/unit/config/config_fixture.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::test;
using Catch::Matchers::Contains;

TEST_CASE("a number that is found automatically is auto in files as in options", "[config]") {
  CHECK(parsed("data.workers = \"auto\"").data.workers == 0);
  CHECK(parsed("comm.bucket-mb = \"auto\"").comm.bucket_mb == 0);
  CHECK(parsed("comm.power-sgd-from-epoch = \"auto\"").comm.power_sgd_from_epoch == 0);
  CHECK_THROWS_WITH(parsed("data.workers = \"4\""), Contains("takes a number or \"auto\""));
  CHECK_THROWS_WITH(parsed("epochs = \"auto\""), Contains("takes a number"));
}

TEST_CASE("a trace of more steps than rank 0 has room for is an error, by the number of ranks",
          "[config]") {
  Config config = with_data();
  config.batch = 4000;
  config.trace = {.first = 11, .last = 1010};
  CHECK_NOTHROW(resolve(config, 20));
  CHECK_THROWS_WITH(resolve(config, 1000),
                    Contains("trace = 11:1010") && Contains("of 20 steps at most"));
  config.trace.last = 30;
  CHECK_NOTHROW(resolve(config, 1000));
}

TEST_CASE("a milestone that is named twice is an error", "[config]") {
  Config config = with_data();
  config.optim.decay = optim::Decay::step;
  config.optim.milestones = {3, 1};
  CHECK_NOTHROW(resolve(config, 1));
  config.optim.milestones = {1, 3, 1};
  CHECK_THROWS_WITH(resolve(config, 1), Contains("optim.milestones = 1,3,1 names an epoch twice"));
}
