#include "train/ending/stop_policy.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::train;
using Catch::Contains;

TEST_CASE("a checkpoint is due so long after the newest one, or after the start", "[run]") {
  SaveClock clock(900, 1000);
  CHECK_FALSE(clock.due(1000));
  CHECK_FALSE(clock.due(1899.9));
  CHECK(clock.due(1900));
  CHECK(clock.due(5000));
  clock.saved(5000);
  CHECK_FALSE(clock.due(5899.9));
  CHECK(clock.due(5900));
}

TEST_CASE("no checkpoint is due by time if none was asked for", "[run]") {
  const SaveClock clock(0, 1000);
  for (const double now_s : {1000.0, 2000.0, 1e9}) CHECK_FALSE(clock.due(now_s));
}

TEST_CASE("where mpirun kills before a step and its checkpoint end, SIGUSR1 is named", "[run]") {
  CHECK(warn_of_launcher(1, 0.1, 1e6).empty());
  CHECK(warn_of_launcher(60, 55, 2e8).empty());
  CHECK_THAT(warn_of_launcher(1, 2.5, 2e8), Contains("kills the ranks 1 s after") &&
                                                Contains("about 3.5 s") &&
                                                Contains("SIGUSR1 to mpirun"));
  // A large model: the checkpoint alone takes longer. Slow steps need more than a minute.
  CHECK_THAT(warn_of_launcher(1, 0.1, 2e9), Contains("about 10.1 s"));
  CHECK_THAT(warn_of_launcher(60, 100, 0), Contains("kills the ranks 60 s after"));
}
