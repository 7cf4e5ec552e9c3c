#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "lockstep/comm/nodes.hpp"

using lockstep::comm::Nodes;
using lockstep::comm::RankPlace;

namespace {

/// Ranks on nodes of machines, in any order.
std::vector<RankPlace> some_places(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<RankPlace> places(1 + random() % 40);
  const unsigned machines = 1 + random() % 5, names = 1 + random() % 5;
  for (RankPlace& place : places)
    place = {"boot" + std::to_string(random() % machines), "n" + std::to_string(random() % names)};
  return places;
}

}  // namespace

TEST_CASE("every rank is in exactly one node, with those that have its machine and name",
          "[nodes]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<RankPlace> places = some_places(seed);
    const Nodes nodes(places);
    REQUIRE(nodes.world() == places.size());
    std::vector<int> times(places.size(), 0);
    for (std::size_t node = 0; node < nodes.count(); ++node)
      for (const int rank : nodes.ranks_of(node)) {
        const auto index = static_cast<std::size_t>(rank);
        ++times[index];
        REQUIRE(nodes.node_of(rank) == node);
        REQUIRE(nodes.name_of(node) == places[index].node);
        REQUIRE(nodes.machine_of(rank) == places[index].machine);
      }
    REQUIRE(std::count(times.begin(), times.end(), 1) ==
            static_cast<std::ptrdiff_t>(places.size()));
    for (std::size_t a = 0; a < places.size(); ++a)
      for (std::size_t b = 0; b < places.size(); ++b)
        REQUIRE((nodes.node_of_ranks()[a] == nodes.node_of_ranks()[b]) == (places[a] == places[b]));
  }
}

TEST_CASE("the ranks of a node are numbered from 0 without gaps, in their order", "[nodes]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Nodes nodes(some_places(seed));
    for (std::size_t node = 0; node < nodes.count(); ++node) {
      const std::vector<int>& ranks = nodes.ranks_of(node);
      REQUIRE(std::is_sorted(ranks.begin(), ranks.end()));
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        REQUIRE(nodes.local_index(ranks[i]) == i);
        REQUIRE(nodes.local_size(ranks[i]) == ranks.size());
        REQUIRE(nodes.leads_node(ranks[i]) == (i == 0));
      }
    }
  }
}

TEST_CASE("nodes are numbered in the order of their first ranks", "[nodes]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Nodes nodes(some_places(seed));
    for (std::size_t node = 1; node < nodes.count(); ++node)
      REQUIRE(nodes.ranks_of(node - 1).front() < nodes.ranks_of(node).front());
  }
}

TEST_CASE("a machine's ranks are those of all its nodes", "[nodes]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<RankPlace> places = some_places(seed);
    const Nodes nodes(places);
    for (int rank = 0; rank < static_cast<int>(places.size()); ++rank) {
      const std::vector<int> here = nodes.ranks_on_machine_of(rank);
      REQUIRE(std::is_sorted(here.begin(), here.end()));
      for (const int mate : nodes.ranks_of(nodes.node_of(rank)))
        REQUIRE(std::find(here.begin(), here.end(), mate) != here.end());
      for (std::size_t i = 0; i < places.size(); ++i)
        REQUIRE((std::find(here.begin(), here.end(), static_cast<int>(i)) != here.end()) ==
                (places[i].machine == nodes.machine_of(rank)));
    }
  }
}

TEST_CASE("cloned machines of one name are two nodes, containers of one machine too", "[nodes]") {
  const Nodes clones({{"boot1", "node"}, {"boot2", "node"}, {"boot1", "node"}});
  CHECK(clones.count() == 2);
  CHECK(clones.ranks_on_machine_of(0) == std::vector<int>{0, 2});
  const Nodes containers({{"boot1", "a"}, {"boot1", "b"}});
  CHECK(containers.count() == 2);
  CHECK(containers.ranks_on_machine_of(1) == std::vector<int>{0, 1});
}

TEST_CASE("a process alone is one rank on one node", "[nodes]") {
  const Nodes alone;
  CHECK(alone.world() == 1);
  CHECK(alone.count() == 1);
  CHECK(alone.leads_node(0));
  CHECK(alone.ranks_on_machine_of(0) == std::vector<int>{0});
}

TEST_CASE("a placement says which ranks share a node, without the nodes' names", "[nodes]") {
  const auto on = [](const std::vector<std::string>& names) {
    std::vector<RankPlace> places;
    for (const std::string& name : names) places.push_back({"boot", name});
    return Nodes(places).placement();
  };
  CHECK(on({"a", "a", "a", "b", "b"}) == "0-2;3-4");
  CHECK(on({"y", "y", "y", "x", "x"}) == "0-2;3-4");
  CHECK(on({"a", "b", "a", "b"}) == "0,2;1,3");
  CHECK(on({"a"}) == "0");
}
