#include <catch2/catch.hpp>

#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/support/networks/flops.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

Network usual(const std::string& model) { return resnet(usual_resnet(model, 0, 0)); }

bool multiplies(const Node& node) { return node.op == Op::conv || node.op == Op::linear; }

std::size_t named(const Network& network, const std::string& name) {
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    if (network.nodes[i].name == name) return i;
  return network.nodes.size();
}

}  // namespace

TEST_CASE("the costs of all products are the operations of the model, in each pass", "[nn]") {
  for (const char* model : {"resnet20", "resnet18", "resnet50"}) {
    const Network network = usual(model);
    NodeCost sum;
    double first = 0;
    for (std::size_t i = 0; i < network.nodes.size(); ++i) {
      if (!multiplies(network.nodes[i])) continue;
      const NodeCost cost = cost_of(network, i, {.rows = 3});
      sum.forward += cost.forward;
      sum.data_gradient += cost.data_gradient;
      sum.weight_gradient += cost.weight_gradient;
      if (network.nodes[i].inputs[0] == 0) first = cost.forward.operations;
    }
    const double model_operations = 3 * test::forward_flops(network);
    CHECK(sum.forward.operations == Approx(model_operations));
    CHECK(sum.weight_gradient.operations == Approx(model_operations));
    CHECK(sum.data_gradient.operations == Approx(model_operations - first));  // the image has none
  }
}

TEST_CASE("a convolution's passes read and write its input, output and weights", "[nn]") {
  const Network network = usual("resnet50");
  const NodeCost cost =
      cost_of(network, named(network, "layer1.0.conv2"), {.rows = 2, .value_bytes = 2});
  const double values = 2.0 * 64 * 56 * 56 * 2, weights = 64.0 * 64 * 9 * 2;
  CHECK(cost.forward.read == values + weights);
  CHECK(cost.forward.written == values);
  CHECK(cost.weight_gradient.read == 2 * values);
  CHECK(cost.weight_gradient.written == weights);
  CHECK(cost.data_gradient.read == values + weights);
  CHECK(cost.data_gradient.written == values);
}

TEST_CASE("a stored image may have more channels than its pixels", "[nn]") {
  const Network network = usual("resnet50");
  const CostSpec padded{.rows = 1, .value_bytes = 4, .image_channels = 4};
  const double pixels = 224.0 * 224;
  CHECK(cost_of(network, 0, padded).forward.read == 3 * pixels);
  CHECK(cost_of(network, 0, padded).forward.written == 4 * 4 * pixels);
  CHECK(cost_of(network, 1, padded).forward.operations ==
        Approx(cost_of(network, 1, {}).forward.operations * 4 / 3));
}

TEST_CASE("bytes grow with the rows and with the bytes of a value, operations with the rows only",
          "[nn]") {
  const Network network = usual("resnet20");
  for (std::size_t i = 1; i < network.nodes.size(); ++i) {
    INFO(network.nodes[i].name);
    const NodeCost one = cost_of(network, i, {}), two = cost_of(network, i, {.rows = 2}),
                   half = cost_of(network, i, {.value_bytes = 2});
    CHECK(two.forward.operations == 2 * one.forward.operations);
    CHECK(two.forward.written == 2 * one.forward.written);
    CHECK(half.forward.operations == one.forward.operations);
    CHECK(half.forward.read == one.forward.read / 2);
  }
  CHECK_THROWS(cost_of(network, network.nodes.size(), {}));
}
