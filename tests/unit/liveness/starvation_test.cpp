#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <optional>

#include "lockstep/liveness/post_mortem.hpp"
#include "lockstep/liveness/process_state.hpp"
#include "lockstep/liveness/roster.hpp"

using namespace lockstep::liveness;
using Catch::Matchers::Contains;

namespace {

std::optional<double> g_waited_s;
std::optional<double> waited() { return g_waited_s; }

/// Passes this time in beats of the given ranks.
void beat(Roster& roster, double seconds, const std::vector<int>& ranks) {
  for (; seconds > 0; seconds -= 1) {
    roster.pass(1);
    for (const int rank : ranks) roster.heard(rank, {7, Phase::forward, 0, 0, false, 1});
  }
}

}  // namespace

TEST_CASE("a thread was starved when it waited for a core, not when it was stopped",
          "[liveness][starvation]") {
  g_waited_s = 3;
  StarvationWatch watch(waited);
  CHECK_FALSE(watch.turn(0.25));
  g_waited_s = 14;
  CHECK(watch.turn(12));
  g_waited_s = 16;
  CHECK(watch.turn(2));
  CHECK(watch.take() == 12);
  CHECK(watch.take() == 0);
  g_waited_s = 16.5;
  CHECK_FALSE(watch.turn(15));  // stopped
  g_waited_s = 17.4;
  CHECK_FALSE(watch.turn(0.9));
  g_waited_s = std::nullopt;
  CHECK_FALSE(watch.turn(5));
  CHECK(watch.take() == 0);
}

TEST_CASE("the kernel says how long a thread has waited for a core", "[liveness][starvation]") {
  const auto before = StarvationWatch::waited_for_a_core();
  if (!before) {
    fmt::print("SKIPPED: this kernel has no /proc/thread-self/schedstat\n");
    return;
  }
  CHECK(*before >= 0);
  CHECK(*StarvationWatch::waited_for_a_core() >= *before);
}

TEST_CASE("what a node did not let a rank send is not silence", "[roster][starvation]") {
  Roster roster({"a", "b", "b"});
  beat(roster, 1, {0, 1, 2});
  beat(roster, 15, {0});
  roster.starved(1, 15);  // rank 1's own words are the first after 15 s
  beat(roster, 6, {0, 1});
  CHECK(roster.missing(20).empty());  // rank 2 was silent for 21 s, 15 of which do not count
  beat(roster, 15, {0, 1});
  CHECK(roster.missing(20) == std::vector<int>{2});
  CHECK(roster.describe_missing({2}) ==
        "rank 2 on b (silent for 36 s, last in step 7, forward; the node is overloaded: rank 1's "
        "heartbeat was not scheduled for 15 s)");
  CHECK_THAT(post_mortem(roster, {.reason = "why", .missing = {2}}, 0),
             Contains("\"not_scheduled_s\": 15.0"));
}

TEST_CASE("what two ranks of a node say about the same time counts once", "[roster][starvation]") {
  Roster roster({"a", "b", "b", "b"});
  beat(roster, 1, {0, 1, 2, 3});
  beat(roster, 10, {0});
  roster.starved(1, 10);
  roster.starved(2, 10);
  beat(roster, 20, {0, 1, 2});
  CHECK(roster.missing(20).empty());
  beat(roster, 1, {0, 1, 2});
  CHECK(roster.missing(20) == std::vector<int>{3});
}

TEST_CASE("time before a rank's last beat does not excuse it", "[roster][starvation]") {
  Roster roster({"a", "b", "b"});
  beat(roster, 20, {0, 2});
  roster.starved(1, 20);
  beat(roster, 21, {0, 1});
  CHECK(roster.missing(20) == std::vector<int>{2});
}

TEST_CASE("on an overloaded node a lost rank is missed after twice the timeout at the latest",
          "[roster][starvation]") {
  Roster roster({"a", "b", "b"});
  beat(roster, 1, {0, 1, 2});
  for (int i = 0; i < 10; ++i) {
    beat(roster, 4, {0});
    roster.starved(1, 4);
    roster.heard(1, {});
    CHECK(roster.missing(20).empty());
  }
  beat(roster, 1, {0, 1});
  CHECK(roster.missing(20) == std::vector<int>{2});
}

TEST_CASE("a rank that was starved a moment ago may be silent for longer; other nodes' may not",
          "[roster][starvation]") {
  Roster roster({"a", "b", "c"});
  beat(roster, 12, {0, 2});
  roster.starved(1, 12);
  beat(roster, 1, {0, 1, 2});
  beat(roster, 21, {0});
  CHECK(roster.missing(20) == std::vector<int>{2});
  CHECK_THAT(roster.describe_missing({1}),
             Contains("the node is overloaded: its heartbeat was not scheduled for 12 s"));
  CHECK_THAT(roster.describe_missing({2}), !Contains("overloaded"));
  beat(roster, 12, {0});
  CHECK(roster.missing(20) == std::vector<int>{1, 2});
  beat(roster, 80, {0, 1, 2});  // long ago
  beat(roster, 21, {0, 2});
  CHECK(roster.missing(20) == std::vector<int>{1});
  CHECK_THAT(roster.describe_missing({1}), !Contains("overloaded"));
}
