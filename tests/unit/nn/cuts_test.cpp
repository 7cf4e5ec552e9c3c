// A network cut into stages.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

Network cuttable(const std::string& model) { return resnet(usual_resnet(model, 0, 0)); }

double largest_part(const Network& network, const std::vector<std::size_t>& cuts) {
  double largest = 0;
  std::size_t first = 0;
  for (std::size_t s = 0; s <= cuts.size(); ++s) {
    const std::size_t last = s < cuts.size() ? cuts[s] + 1 : network.nodes.size();
    largest = std::max(largest, training_work(network, first, last));
    first = last;
  }
  return largest;
}

/// Of all cuts into that many stages.
double least_by_trying(const Network& network, std::size_t stages) {
  const std::vector<std::size_t> ends = block_ends(network);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t chosen = 0; chosen < std::size_t{1} << ends.size(); ++chosen) {
    std::vector<std::size_t> cuts;
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (chosen >> i & 1) cuts.push_back(ends[i]);
    if (cuts.size() + 1 == stages) least = std::min(least, largest_part(network, cuts));
  }
  return least;
}

}  // namespace

TEST_CASE("balanced cuts are the best of all cuts at block ends", "[nn][pipeline]") {
  for (const char* model : {"resnet20", "resnet18", "resnet50"})
    for (const bool frozen : {false, true}) {
      const Network network = with_frozen(cuttable(model), frozen ? Freeze::layer1 : Freeze::none);
      const std::size_t most = block_ends(network).size() + 1;
      for (std::size_t stages = 1; stages <= std::min<std::size_t>(most, 9); ++stages) {
        INFO(model << (frozen ? ", frozen, " : ", ") << stages << " stages");
        const std::vector<std::size_t> cuts = balanced_cuts(network, stages);
        REQUIRE(cuts.size() + 1 == stages);
        REQUIRE(largest_part(network, cuts) ==
                Approx(least_by_trying(network, stages)).epsilon(1e-12));
      }
      CHECK_THROWS_WITH(balanced_cuts(network, most + 1),
                        Catch::Contains("at most " + std::to_string(most) + " stages"));
    }
}

TEST_CASE("stages of a ResNet-50 have nearly equal work", "[nn][pipeline]") {
  const Network network = cuttable("resnet50");
  const double all = training_work(network, 0, network.nodes.size());
  for (const auto& [stages, balance] : {std::pair<std::size_t, double>{2, 0.93}, {4, 0.89}})
    CHECK(all / static_cast<double>(stages) /
              largest_part(network, balanced_cuts(network, stages)) >
          balance);
}

TEST_CASE("frozen layers are in the first stage, which also learns", "[nn][pipeline]") {
  const Network network = with_frozen(cuttable("resnet18"), Freeze::layer2);
  const std::vector<Network> stages = split(network, balanced_cuts(network, 2));
  CHECK(stages[0].frozen_nodes == network.frozen_nodes);
  CHECK(stages[0].nodes.size() > network.frozen_nodes + 2);
  CHECK(stages[1].frozen_nodes == 0);
  CHECK_THROWS_WITH(
      balanced_cuts(with_frozen(cuttable("resnet18"), Freeze::backbone), 2),
      Catch::Contains("at most 1 stages, at the ends of its blocks after the frozen"));
}
