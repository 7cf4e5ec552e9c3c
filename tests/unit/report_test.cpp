#include "train/report.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;
using namespace lockstep::train;
using Catch::Contains;

TEST_CASE("the time that is left counts the validations that will be made", "[report]") {
  RunStatistics seen;
  seen.steps = 10;
  seen.train_s = 10;
  seen.validation_s = 1000;
  // Of ten epochs of two steps three and a half are done: thirteen steps are left.
  const auto line = [&](std::uint64_t every) {
    return progress_line(Progress{.step = 7, .epoch = 3, .batch = 1}, seen,
                         {.epochs = 10, .steps_per_epoch = 2, .validate_every = every});
  };
  CHECK_THAT(line(1), Contains("ETA 1:56:53"));  // behind epochs 4 to 10
  CHECK_THAT(line(3), Contains("ETA 50:13"));    // 6, 9, 10
  CHECK_THAT(line(5), Contains("ETA 33:33"));    // 5, 10
  CHECK_THAT(line(100), Contains("ETA 16:53"));  // 10
}
