#include <catch2/catch.hpp>

#include "lockstep/observe/rank_times.hpp"
#include "tests/support/written_to.hpp"

using namespace lockstep;
using lockstep::test::written_to;
using namespace lockstep::observe;

namespace {

/// data, forward, backward, exposed communication, update: a step of 100 ms.
StepTimes usual_times() { return {1, 30, 60, 4, 5}; }

}  // namespace

TEST_CASE("ranks that work alike have no straggler among them", "[stragglers]") {
  CHECK(find_stragglers({usual_times()}, 0.2).empty());
  std::vector<StepTimes> ranks(4, usual_times());
  CHECK(find_stragglers(ranks, 0.2).empty());
  ranks[1].forward_ms += 19;  // of 100
  CHECK(find_stragglers(ranks, 0.2).empty());
}

TEST_CASE("data is the limit where a rank waits long for it, and it is said by how much",
          "[stragglers]") {
  std::vector<StepTimes> ranks(3, usual_times());
  CHECK_FALSE(find_data_limit(ranks, 0.1).has_value());
  ranks[0].data_ms = 10;
  CHECK_FALSE(find_data_limit(ranks, 0.1).has_value());
  ranks[1].data_ms = 99;
  const auto found = find_data_limit(ranks, 0.1);
  REQUIRE(found.has_value());
  CHECK(found->rank == 1);
  CHECK(found->wait_ms == 99);
  CHECK(found->share() == Approx(0.5));
  CHECK(find_data_limit({{50, 30, 15, 4, 1}}, 0.1).has_value());           // alone, too
  CHECK_FALSE(find_data_limit({{0.5, 0.1, 0.1, 0, 0}}, 0.1).has_value());  // too short to matter
}

TEST_CASE("a rank that works longer is late, in the phase where it loses most", "[stragglers]") {
  std::vector<StepTimes> ranks(4, usual_times());
  ranks[2].forward_ms += 10;
  ranks[2].backward_ms += 15;
  const auto found = find_stragglers(ranks, 0.2);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == 2);
  CHECK(found[0].phase == comm::Phase::backward);
  CHECK(found[0].late_ms == Approx(25));
  CHECK(found[0].phase_ms == Approx(75));
  CHECK(found[0].usual_phase_ms == Approx(60));
}

TEST_CASE("a rank that waits for others is not late", "[stragglers]") {
  std::vector<StepTimes> ranks(2, usual_times());
  ranks[1].data_ms += 50;
  ranks[0].exposed_comm_ms += 50;  // for rank 1
  const auto found = find_stragglers(ranks, 0.2);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == 1);
  CHECK(found[0].phase == comm::Phase::data);
}

TEST_CASE("a slow node's ranks are all named, unless they are a majority", "[stragglers]") {
  std::vector<StepTimes> ranks(4, usual_times());
  ranks[2].backward_ms += 40;
  ranks[3].backward_ms += 60;
  const auto found = find_stragglers(ranks, 0.2);
  REQUIRE(found.size() == 2);
  CHECK(found[0].rank == 2);
  CHECK(found[1].rank == 3);
}

TEST_CASE("a rank that is late now and then is named once, and again after a while on time",
          "[stragglers]") {
  StragglerWatch watch({"rank 0 on n", "rank 1 on n", "rank 2 on n"}, "set");
  std::vector<StepTimes> on_time(3, usual_times()), late = on_time;
  late[1].backward_ms += 60;
  const auto said = [&](const std::vector<StepTimes>& ranks) {
    const std::string heard = written_to(STDERR_FILENO, [&] { watch.judge(ranks, 50); });
    return heard.find("rank 1 on n is late") != heard.npos;
  };
  CHECK(said(late));
  for (int window = 0; window < 9; ++window) CHECK_FALSE(said(on_time));
  CHECK_FALSE(said(late));
  for (int window = 0; window < 10; ++window) CHECK_FALSE(said(on_time));
  CHECK(said(late));
}
