#include "train/ending/stop_policy.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::train;

TEST_CASE("a run stops when it is asked to, otherwise only before its allocation's end", "[run]") {
  for (const auto& end : {std::optional<double>{}, std::optional<double>{1000}}) {
    const StopPolicy policy({.allocation_end_s = end, .margin_s = 30});
    CHECK(policy.wants_stop(true, 0));
    CHECK_FALSE(policy.wants_stop(false, 0));
    CHECK(policy.wants_stop(false, 2000) == end.has_value());
    CHECK(policy.time_is_up(2000) == end.has_value());
  }
}

TEST_CASE("before an allocation's end there is time for two steps, two checkpoints and the margin",
          "[run]") {
  StopPolicy policy({.allocation_end_s = 1000, .margin_s = 30});
  CHECK_FALSE(policy.time_is_up(970));
  CHECK(policy.time_is_up(970.001));
  policy.add_step(4);
  CHECK_FALSE(policy.time_is_up(962));
  CHECK(policy.time_is_up(962.001));
  policy.add_save(10);
  CHECK_FALSE(policy.time_is_up(932));
  CHECK(policy.time_is_up(932.001));
}

TEST_CASE("the longest step and the longest checkpoint count", "[run]") {
  StopPolicy policy({.allocation_end_s = 100});
  for (const double seconds : {1.0, 7.0, 2.0}) policy.add_step(seconds);
  for (const double seconds : {3.0, 0.5}) policy.add_save(seconds);
  CHECK_FALSE(policy.time_is_up(77));
  CHECK(policy.time_is_up(77.001));
}

TEST_CASE("a run ends after the step that was named, and after no other", "[run]") {
  const StopPolicy named({.stop_after = 5});
  const StopPolicy unnamed({});
  for (std::uint64_t step = 0; step < 10; ++step) {
    CHECK(named.ends_after(step) == (step == 5));
    CHECK_FALSE(unnamed.ends_after(step));
    CHECK(StopPolicy({.stop_after_epoch = 5}).ends_after_epoch(step) == (step == 5));
    CHECK_FALSE(unnamed.ends_after_epoch(step));
  }
}
