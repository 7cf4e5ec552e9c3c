#include <catch2/catch.hpp>

#include "lockstep/liveness/links.hpp"

using lockstep::liveness::LinkReport;
using lockstep::liveness::Links;

namespace {

const std::vector<std::string> five_nodes{"a", "a", "b", "b", "c", "d", "e"};

std::vector<std::pair<int, int>> broken(const Links& links) {
  std::vector<std::pair<int, int>> pairs;
  for (const Links::Link& link : links.broken()) pairs.emplace_back(link.from, link.to);
  return pairs;
}

LinkReport not_reached(std::vector<int> ranks) { return {std::move(ranks), {}}; }

}  // namespace

TEST_CASE("the first rank of each node tries the links", "[links]") {
  CHECK(Links(five_nodes).first_ranks() == std::vector<int>{0, 2, 4, 5, 6});
  CHECK(Links({"a", "b", "a", "b"}).first_ranks() == std::vector<int>{0, 1});
}

TEST_CASE("a link is broken when neither side reaches the other", "[links]") {
  Links links(five_nodes);
  links.heard(2, not_reached({4}));
  links.heard(4, not_reached({2, 5}));
  links.heard(5, {});
  links.heard(0, {});
  CHECK_FALSE(links.complete());
  links.heard(6, {});
  CHECK(links.complete());
  CHECK(broken(links) == std::vector<std::pair<int, int>>{{2, 4}});
  CHECK(links.describe(links.broken()) ==
        "the network between b (rank 2) and c (rank 4) is broken: they do not reach each other, "
        "though a (rank 0) hears them");
  CHECK(links.nodes_to_leave_out(links.broken()) == std::vector<std::string>{"c"});
  links.begin();
  CHECK_FALSE(links.complete());
  CHECK(links.broken().empty());
}

TEST_CASE("a node that reaches no other is the one to leave out", "[links]") {
  Links links(five_nodes);
  links.heard(2, not_reached({4, 5, 6}));
  for (const int rank : {4, 5, 6}) links.heard(rank, not_reached({2}));
  CHECK(links.broken().size() == 3);
  CHECK(links.nodes_to_leave_out(links.broken()) == std::vector<std::string>{"b"});
}

TEST_CASE("a link that loses large packets in one direction is broken, also one of rank 0's",
          "[links]") {
  Links links(five_nodes);
  links.heard(4, {{}, {{0, 9000}, {2, 9000}}});
  CHECK(broken(links) == std::vector<std::pair<int, int>>{{0, 4}, {2, 4}});
  CHECK(links.describe(links.broken()) ==
        "the network passes small packets only from a (rank 0) to c (rank 4), from b (rank 2) to c "
        "(rank 4): packets of 9000 bytes do not pass, small ones do: is the MTU the same "
        "everywhere?");
  CHECK(links.nodes_to_leave_out(links.broken()) == std::vector<std::string>{"c"});
}
