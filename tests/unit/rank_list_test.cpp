#include "mpi/rank_list.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::comm;

TEST_CASE("ranks are listed briefly in messages", "[control]") {
  REQUIRE(rank_list({3}) == "rank 3");
  REQUIRE(rank_list({0, 2}) == "ranks 0, 2");
  REQUIRE(rank_list({0, 2, 3, 4, 9}) == "ranks 0, 2-4, 9");
  REQUIRE(rank_list(all_but({2, 0}, 5)) == "ranks 1, 3-4");
  REQUIRE(all_but({1, 0}, 2).empty());
}
