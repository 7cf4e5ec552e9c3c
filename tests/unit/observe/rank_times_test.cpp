#include "lockstep/observe/rank_times.hpp"

#include <catch2/catch.hpp>

#include "lockstep/comm/record.hpp"
#include "tests/support/laws/solo.hpp"

using namespace lockstep;
using namespace lockstep::observe;

namespace {

/// Rank 0 of two ranks; the second one always brings what the first does. Counts the meetings.
class TwoRanks final : public comm::Control {
 public:
  int rank() const override { return 0; }
  int world() const override { return 2; }
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    ++gathers;
    return combine({mine, mine});
  }
  int gathers = 0;
};

comm::Nodes two_nodes() {
  return comm::Nodes({{.machine = "a", .node = "n1"}, {.machine = "b", .node = "n2"}});
}

}  // namespace

TEST_CASE("an epoch's record has the mean of all its steps, with a few meetings", "[rank-times]") {
  TwoRanks control;
  RankTimes times(two_nodes(), "train");
  for (int step = 1; step <= 120; ++step)
    times.add({.data_ms = step == 1 ? 120.0 : 0, .forward_ms = 2, .other_ms = 1}, control);
  CHECK(control.gathers == 3);  // after steps 1, 51 and 101
  const auto record = times.end_epoch(control);
  CHECK(control.gathers == 4);
  REQUIRE(record);
  CHECK(record->steps == 120);
  CHECK(record->data.ranks == std::vector<double>{1, 1});
  CHECK(record->forward.median_ms == 2);
  CHECK(record->other.max_ms == 1);

  CHECK_FALSE(times.end_epoch(control));  // no step since
  CHECK(control.gathers == 4);
  times.add({.forward_ms = 7}, control);
  const auto next = times.end_epoch(control);
  REQUIRE(next);
  CHECK(next->steps == 1);
  CHECK(next->forward.max_ms == 7);
}

TEST_CASE("a window of a judgement may span epochs", "[rank-times]") {
  TwoRanks control;
  RankTimes times(two_nodes(), "train");
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (int step = 0; step < 6; ++step) times.add({.forward_ms = 1}, control);
    const auto record = times.end_epoch(control);
    REQUIRE(record);
    CHECK(record->steps == 6);
    CHECK(record->forward.max_ms == 1);
  }
  CHECK(control.gathers == 1 + 10 + 1);  // the first step, ten epochs, one window
}
