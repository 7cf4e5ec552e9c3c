#include <catch2/catch.hpp>

#include "comm/waits/roll_call.hpp"
#include "lockstep/comm/nodes.hpp"

using namespace lockstep::comm;

TEST_CASE("ranks are listed briefly in messages", "[control]") {
  REQUIRE(rank_list({3}) == "rank 3");
  REQUIRE(rank_list({0, 2}) == "ranks 0, 2");
  REQUIRE(rank_list({0, 2, 3, 4, 9}) == "ranks 0, 2-4, 9");
  REQUIRE(rank_list(all_but({2, 0}, 5)) == "ranks 1, 3-4");
  REQUIRE(all_but({1, 0}, 2).empty());
}

TEST_CASE("a rank that waited too long names ranks without an answer, then ranks elsewhere",
          "[control]") {
  REQUIRE(describe_missing("step", 60, all_but({}, 4), {{0, "step"}, {2, "step"}}) ==
          "step: ranks 1, 3 did not arrive within 60 s");
  REQUIRE(describe_missing("step", 60, all_but({}, 4),
                           {{0, "step"}, {1, "bucket 3"}, {2, "bucket 3"}}) ==
          "step: rank 3 did not arrive within 60 s; ranks 1-2 wait in 'bucket 3'");
  REQUIRE(
      describe_missing("step of group nodes", 60, all_but({}, 4),
                       {{0, "step of group nodes"}, {1, "bucket 3 of group nodes"}, {2, "step"}}) ==
      "step of group nodes: rank 3 did not arrive within 60 s; rank 1 waits in 'bucket 3 of group "
      "nodes'");
  REQUIRE(describe_missing("step of group nodes", 60, all_but({}, 2),
                           {{0, "step of group nodes"}, {1, "step"}}) ==
          "step of group nodes: nothing came for 60 s, though all ranks answer; rank 1 waits in "
          "'step'");
  REQUIRE(describe_missing("step", 0.5, all_but({}, 2), {{0, "step"}, {1, "epoch"}}) ==
          "step: nothing came for 0.5 s, though all ranks answer; rank 1 waits in 'epoch'");
}
