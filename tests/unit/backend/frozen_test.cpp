#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/support/laws/frozen.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using nn::Freeze;

TEST_CASE("with frozen layers the others have the gradients of the whole network",
          "[frozen][cpu]") {
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  for (const nn::Network& network : all_sketches())
    check_frozen(*backend, network, Precision::fp32, 1e-4);
}

TEST_CASE("with frozen layers bf16 is as near to it as bf16 is", "[frozen][cpu]") {
  if (!has_bf16()) return;
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  for (const nn::Network& network : {plain(), padded_shortcuts()})
    check_frozen(*backend, network, Precision::bf16, 0.1);
}

TEST_CASE("what is frozen ends with the layer that is named", "[frozen][nn]") {
  const auto last = [](const char* model, Freeze freeze) {
    const nn::Network network = nn::with_frozen(nn::resnet({.model = model}), freeze);
    return network.frozen_nodes > 0 ? network.nodes[network.frozen_nodes - 1].name : "";
  };
  CHECK(last("resnet20", Freeze::none).empty());
  CHECK(last("resnet20", Freeze::conv1) == "relu");
  CHECK(last("resnet20", Freeze::layer2) == "layer2.2.relu");
  CHECK(last("resnet20", Freeze::layer3) == "layer3.2.relu");
  CHECK(last("resnet20", Freeze::backbone) == "layer3.2.relu");
  CHECK(last("resnet50", Freeze::conv1) == "maxpool");
  CHECK(last("resnet50", Freeze::layer3) == "layer3.5.relu");
  CHECK(last("resnet50", Freeze::backbone) == "layer4.2.relu");
  CHECK_THROWS_WITH(nn::with_frozen(plain(), Freeze::layer3),
                    Catch::Contains("freeze = layer3: ") && Catch::Contains("no such layer"));
}

TEST_CASE("no gradient comes back from a network's trained part", "[frozen][nn]") {
  const nn::Network network = nn::resnet({.model = "resnet20"});
  const auto [frozen, trained] = nn::split_frozen(nn::with_frozen(network, Freeze::layer1));
  CHECK(frozen.nodes.back().op == nn::Op::send);
  CHECK(frozen.nodes.back().gradients == 0);
  CHECK(trained.nodes.front().gradients == 0);
  CHECK(nn::numbers(frozen) + nn::numbers(trained) == nn::numbers(network));
}
