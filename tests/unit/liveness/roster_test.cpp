#include <catch2/catch.hpp>

#include "lockstep/liveness/roster.hpp"

using namespace lockstep::liveness;
using Catch::Matchers::Contains;
using lockstep::Ending;

namespace {

Activity at(std::uint64_t step, Phase phase, bool waiting, std::uint64_t movements) {
  return {step, phase, 3, 1000000, waiting, movements};
}

}  // namespace

TEST_CASE("a rank is missing when it was silent for the timeout, not before", "[roster]") {
  Roster roster({"a", "a", "b"});
  for (int rank = 0; rank < 3; ++rank) roster.heard(rank, at(7, Phase::forward, false, 1));
  roster.pass(15);
  roster.heard(0, at(7, Phase::reduction, true, 2));
  roster.heard(1, at(7, Phase::reduction, true, 2));
  roster.pass(5);
  CHECK(roster.missing(20).empty());
  roster.pass(1);
  CHECK(roster.missing(20) == std::vector<int>{2});
  CHECK(roster.describe_missing({2}) == "rank 2 on b (silent for 21 s, last in step 7, forward)");
}

TEST_CASE("a rank whose process ended is missing at once, one that said goodbye never",
          "[roster]") {
  Roster roster({"a", "b", "c"});
  for (int rank = 0; rank < 3; ++rank) roster.heard(rank, at(2, Phase::checkpoint, false, 1));
  roster.left(1);
  roster.broke(2);
  roster.pass(1);
  CHECK(roster.missing(20) == std::vector<int>{2});
  CHECK_THAT(roster.describe_missing({2}),
             Contains("its process has ended, last in step 2, checkpoint"));
  roster.pass(100);
  CHECK(roster.missing(200) == std::vector<int>{2});
}

TEST_CASE("a rank that was never heard from is not missing", "[roster]") {
  Roster roster({"a", "b"});
  roster.heard(0, at(1, Phase::data, false, 1));
  roster.pass(10);
  roster.heard(0, at(1, Phase::data, false, 2));
  CHECK(roster.missing(5).empty());
  CHECK(roster.never_heard() == std::vector<int>{1});
}

TEST_CASE("a rank is late when it keeps others waiting, not when it waits", "[roster]") {
  Roster roster({"a", "b", "c"});
  roster.heard(0, at(9, Phase::reduction, true, 5));
  roster.heard(1, at(9, Phase::data, false, 5));
  roster.heard(2, at(9, Phase::reduction, true, 5));
  roster.pass(30);
  CHECK(roster.late(29) == std::vector<int>{1});
  CHECK(roster.stuck(29));
  CHECK(roster.describe_late({1}) == "rank 1 on b (in step 9, data for 30 s)");
  CHECK(roster.late(31).empty());
  roster.heard(1, at(9, Phase::forward, false, 6));
  CHECK(roster.late(29).empty());
  CHECK_FALSE(roster.stuck(29));
}

TEST_CASE("of a thousand ranks that are late or missing, a few are described and all are named",
          "[roster]") {
  Roster roster(std::vector<std::string>(1000, "a node with a long name"));
  for (int rank = 0; rank < 1000; ++rank) roster.heard(rank, at(9, Phase::reduction, rank < 3, 5));
  roster.pass(30);
  const std::vector<int> late = roster.late(29);
  REQUIRE(late.size() == 997);
  for (const std::string& text : {roster.describe_late(late), roster.describe_missing(late)}) {
    CHECK_THAT(text, Contains("rank 22 on a node") && !Contains("rank 23 on") &&
                         Catch::Matchers::EndsWith("), and ranks 23-999"));
    CHECK(text.size() < 3000);
  }
}

TEST_CASE("a late rank that waits for a file system is not at fault", "[roster]") {
  Roster roster({"a", "b"});
  const auto absence = [&](Activity activity) {
    roster.heard(0, activity);
    roster.heard(1, at(9, Phase::reduction, true, 5));
    roster.pass(30);
    return *roster.absence(60, 20);
  };
  CHECK(absence(at(9, Phase::data, false, 5)).ending == Ending::stuck);
  CHECK(absence(at(9, Phase::checkpoint, false, 5)).ending == Ending::file_system);
  Activity held = at(9, Phase::end_of_step, false, 5);
  held.on_files = true;
  const auto found = absence(held);
  CHECK(found.ending == Ending::file_system);
  CHECK(found.ranks == std::vector<int>{0});
  CHECK_THAT(found.text, Contains("does the file system of the run answer?"));
}

TEST_CASE("when all wait, those in an earlier step are late", "[roster]") {
  Roster roster({"a", "b"});
  roster.heard(0, at(9, Phase::reduction, true, 5));
  roster.heard(1, at(8, Phase::end_of_step, true, 5));
  roster.pass(30);
  CHECK(roster.late(29) == std::vector<int>{1});
  roster.heard(1, at(9, Phase::reduction, true, 5));
  CHECK(roster.late(29).empty());
  CHECK(roster.stuck(29));
}

TEST_CASE("all ranks wait when each is there, waits, and has not moved", "[roster]") {
  Roster roster({"a", "b"});
  roster.heard(0, at(9, Phase::reduction, true, 5));
  CHECK_FALSE(roster.all_wait(0));
  roster.heard(1, at(9, Phase::reduction, true, 5));
  roster.pass(30);
  CHECK(roster.all_wait(29));
  CHECK_FALSE(roster.all_wait(30));
  roster.heard(1, at(9, Phase::checkpoint, false, 5));
  CHECK_FALSE(roster.all_wait(29));
  roster.heard(1, at(9, Phase::reduction, true, 5));
  roster.left(1);
  CHECK_FALSE(roster.all_wait(29));
}

TEST_CASE("a rank that computes long while no rank waits is not late", "[roster]") {
  Roster roster({"a", "b"});
  for (int rank = 0; rank < 2; ++rank) roster.heard(rank, at(0, Phase::start_up, false, 1));
  roster.pass(1000);
  CHECK(roster.late(100).empty());
  CHECK_FALSE(roster.stuck(100));
}

TEST_CASE("a rank is kept waiting by those that have gone, else by those that are late",
          "[roster]") {
  Roster roster({"a", "b", "c", "d"});
  for (int rank = 0; rank < 4; ++rank) roster.heard(rank, at(9, Phase::reduction, rank != 1, 5));
  roster.pass(30);
  for (int rank = 0; rank < 4; ++rank) roster.heard(rank, at(9, Phase::reduction, rank != 1, 5));
  const auto late = roster.absence(3, 20);
  REQUIRE(late);
  CHECK(late->ranks == std::vector<int>{1});
  CHECK_THAT(late->text, Contains("the others wait for rank 1 on b (in step 9"));
  CHECK(roster.absence(3, 40)->ranks.empty());
  roster.left(3);
  roster.broke(2);
  const auto gone = roster.absence(3, 20);
  CHECK(gone->ranks == std::vector<int>{2, 3});
  CHECK_THAT(gone->text, Contains("missing: rank 2 on c (its process has ended, last in step 9"));
  roster.pass(4);
  CHECK(roster.absence(3, 20)->ranks == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("the absent ranks are not known while a rank was never heard from", "[roster]") {
  Roster roster({"a", "b"});
  roster.heard(0, at(1, Phase::reduction, true, 1));
  roster.pass(100);
  CHECK_FALSE(roster.absence(3, 20));
}

TEST_CASE("a rank in an earlier step is waited for as long as it makes steps", "[roster]") {
  Roster roster({"a", "b"});
  std::uint64_t movements = 1;
  const auto both = [&](std::uint64_t step) {
    roster.heard(0, at(8, Phase::update, true, 1));
    roster.heard(1, at(step, Phase::backward, false, ++movements));
  };
  both(1);
  for (std::uint64_t step = 2; step < 8; ++step) {
    roster.pass(15);
    both(step);
    const auto absence = roster.absence(20, 60);
    REQUIRE(absence);
    CHECK((absence->ranks.empty() && absence->nearer && absence->ending == Ending::stuck));
    CHECK_THAT(absence->text, Contains("rank 1 on b") && Contains("make steps"));
  }
  // Its step is an endless one.
  for (int i = 0; i < 5; ++i) {
    roster.pass(15);
    both(7);
  }
  CHECK_FALSE(roster.absence(20, 60)->nearer);
  both(8);
  CHECK_FALSE(roster.absence(20, 60)->nearer);
}
