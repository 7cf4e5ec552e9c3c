#include "lockstep/nn/network.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/initial_weights.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/support/networks/flops.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

Network build(const std::string& model, std::size_t size, std::size_t classes,
              Shortcut shortcut = Shortcut::family_default) {
  ResNetSpec spec;
  spec.model = model;
  spec.height = spec.width = size;
  spec.classes = classes;
  spec.shortcut = shortcut;
  return resnet(spec);
}

std::size_t learned_count(const Network& network) {
  std::size_t count = 0;
  for (const Tensor& tensor : tensors(network)) count += learned(tensor.role) ? tensor.count() : 0;
  return count;
}

}  // namespace

TEST_CASE("each model has as many parameters as published", "[nn]") {
  // He et al. 2016, table 6 (option A), and torchvision's documentation.
  CHECK(learned_count(build("resnet20", 32, 10)) == 269722);
  CHECK(learned_count(build("resnet32", 32, 10)) == 464154);
  CHECK(learned_count(build("resnet44", 32, 10)) == 658586);
  CHECK(learned_count(build("resnet56", 32, 10)) == 853018);
  CHECK(learned_count(build("resnet110", 32, 10)) == 1727962);
  CHECK(learned_count(build("resnet18", 224, 1000)) == 11689512);
  CHECK(learned_count(build("resnet34", 224, 1000)) == 21797672);
  CHECK(learned_count(build("resnet50", 224, 1000)) == 25557032);
  CHECK(learned_count(build("resnet101", 224, 1000)) == 44549160);
  CHECK(learned_count(build("resnet152", 224, 1000)) == 60192808);
  CHECK(learned_count(build("wide_resnet50_2", 224, 1000)) == 68883240);
  CHECK(learned_count(build("wide_resnet101_2", 224, 1000)) == 126886696);
  CHECK(learned_count(build("resnext50_32x4d", 224, 1000)) == 25028904);
  CHECK(learned_count(build("resnext101_32x8d", 224, 1000)) == 88791336);
  CHECK(learned_count(build("resnext101_64x4d", 224, 1000)) == 83455272);
}

TEST_CASE("ResNet-D has the deep stem, and means before its shortcuts' convolutions", "[nn]") {
  ResNetSpec spec = usual_resnet("resnet50", 0, 0);
  spec.design.stem = Stem::deep;
  spec.shortcut = Shortcut::average;
  const Network network = resnet(spec);
  CHECK(learned_count(network) == 25576264);  // as timm's resnet50d
  std::vector<std::string> means;
  for (const Node& node : network.nodes)
    if (node.op == Op::avg_pool) means.push_back(node.name);
  CHECK(means == std::vector<std::string>{"layer2.0.downsample.0", "layer3.0.downsample.0",
                                          "layer4.0.downsample.0"});
  // Of odd maps, the last cells are smaller.
  const auto height_of = [](std::size_t size) {
    for (const Node& node : build("resnet18", size, 10, Shortcut::average).nodes)
      if (node.op == Op::avg_pool) return node.shape.height;
    return std::size_t{0};
  };
  CHECK(height_of(224) == 28);
  CHECK(height_of(97) == 13);
}

TEST_CASE("one image of ResNet-50 takes 8.2 GFLOP forward", "[nn]") {
  CHECK(test::forward_flops(build("resnet50", 224, 1000)) / 1e9 == Approx(8.18).epsilon(0.01));
}

TEST_CASE("tensors carry torchvision's names", "[nn]") {
  std::set<std::string> names;
  for (const Tensor& tensor : tensors(build("resnet50", 224, 1000))) names.insert(tensor.name);
  for (const char* name : {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight",
                           "layer1.0.downsample.1.bias", "layer3.5.conv3.weight",
                           "layer4.2.bn3.running_mean", "fc.weight", "fc.bias"})
    CHECK(names.count(name) == 1);
  CHECK(names.size() == 320 - 53);  // torchvision counts 53 num_batches_tracked as well
}

TEST_CASE("unknown models, tiny images and option A in bottlenecks are errors", "[nn]") {
  CHECK_THROWS_WITH(build("resnet21", 32, 10),
                    Catch::Contains("resnet21") && Catch::Contains("resnet20"));
  CHECK_THROWS_AS(build("resnet50", 64, 10, Shortcut::pad), InputError);
  CHECK_THROWS_AS(build("resnet18", 64, 1), InputError);
  CHECK_NOTHROW(build("resnet20", 32, 10, Shortcut::conv));
}

TEST_CASE("the arena holds learned slices in backward order, then statistics, aligned and disjoint",
          "[nn]") {
  const Network network = build("resnet50", 64, 10);
  const ArenaLayout layout = arena_layout(
      network, [](const Tensor& tensor) { return tensor.count() + tensor.count() % 3; });
  std::size_t end = 0;
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const Slice& slice = layout.slices[s];
    CHECK(slice.offset % 16 == 0);
    CHECK(slice.offset >= end);
    CHECK(slice.size >= slice.tensor.count());
    end = slice.offset + slice.size;
    CHECK(learned(slice.tensor.role) == (s < layout.learned_slices));
    if (s > 0 && s < layout.learned_slices)
      CHECK(slice.tensor.node <= layout.slices[s - 1].tensor.node);
  }
  CHECK(layout.slices.front().tensor.name == "fc.weight");
  CHECK(layout.slices[layout.learned_slices - 1].tensor.name == "conv1.weight");
  CHECK(layout.size >= end);
  CHECK_THROWS_WITH(layout.find("fc2.weight"), Catch::Contains("fc2.weight"));
}

TEST_CASE("initial values follow from seed and name alone, with He's deviation", "[nn]") {
  const Network network = build("resnet20", 32, 10);
  for (const Tensor& tensor : tensors(network)) {
    std::vector<float> a(tensor.count()), b(tensor.count()), other(tensor.count());
    initialise(network, tensor, {7}, a);
    initialise(network, tensor, {7}, b);
    initialise(network, tensor, {8}, other);
    CHECK(a == b);
    if (tensor.role == Role::conv_weight || tensor.role == Role::linear_weight) CHECK(a != other);
    if (tensor.role != Role::conv_weight || tensor.count() < 9000) continue;
    double squares = 0;
    for (const float v : a) squares += static_cast<double>(v) * v;
    const double fan_out = static_cast<double>(tensor.shape[0]) * 9;
    CHECK(squares / static_cast<double>(a.size()) == Approx(2 / fan_out).epsilon(0.08));
  }
}

TEST_CASE("zero-initialised residuals start the last scale of each branch at 0", "[nn]") {
  ResNetSpec spec;
  spec.model = "resnet50";
  spec.height = spec.width = 64;
  spec.zero_init_residual = true;
  const Network network = resnet(spec);
  for (const Tensor& tensor : tensors(network)) {
    if (tensor.role != Role::bn_scale) continue;
    std::vector<float> values(tensor.count());
    initialise(network, tensor, {1}, values);
    CHECK(values[0] == (tensor.name.ends_with("bn3.weight") ? 0.f : 1.f));
  }
}

TEST_CASE("a design changes one thing of a model, and the rest follows", "[nn]") {
  const auto built = [](const std::string& model, const Design& design) {
    ResNetSpec spec = usual_resnet(model, 64, 10);
    spec.design = design;
    return resnet(spec);
  };
  const auto shape_of = [](const Network& network, const std::string& name) {
    for (const Node& node : network.nodes)
      if (node.name == name) return node.shape;
    throw Error("no node " + name);
  };
  const Network small = built("resnet18", {.stem = Stem::small});
  CHECK(shape_of(small, "conv1") == Shape{64, 64, 64});
  CHECK(shape_of(small, "layer4.1.relu") == Shape{512, 8, 8});
  const Network wide = built("resnet50", {.width = 32});
  CHECK(shape_of(wide, "layer1.0.conv1") == Shape{32, 16, 16});
  CHECK(shape_of(wide, "layer4.2.relu") == Shape{1024, 2, 2});
  CHECK(shape_of(built("resnet50", {.inner = 128}), "layer2.0.conv2") == Shape{256, 8, 8});
  const Network deep = built("resnet20", {.block = BlockKind::bottleneck, .blocks = {2, 2}});
  CHECK(shape_of(deep, "layer2.1.relu") == Shape{128, 32, 32});
  const Network stem = built("resnet18", {.stem = Stem::deep});
  CHECK(shape_of(stem, "conv1.0") == Shape{32, 32, 32});
  CHECK(shape_of(stem, "conv1.6") == Shape{64, 32, 32});
  CHECK_THROWS_WITH(built("resnet18", {.stem = Stem::deep, .width = 16}),
                    Catch::Contains("a multiple of 32"));
  CHECK_THROWS_WITH(built("resnet18", {.width = 24}), Catch::Contains("multiple of 16"));
  CHECK_THROWS_WITH(built("resnet18", {.inner = 64}), Catch::Contains("only bottlenecks"));
  CHECK_THROWS_WITH(built("resnet18", {.groups = 2}), Catch::Contains("only bottlenecks"));
  CHECK_THROWS_WITH(built("resnext50_32x4d", {.inner = 48}),
                    Catch::Contains("32 groups do not divide the 48 channels"));
  CHECK(tensors(built("resnet50", {.groups = 4}))[10].shape ==
        std::vector<std::size_t>{64, 16, 3, 3});
  CHECK_THROWS_WITH(built("resnet18", {.blocks = {2, 0}}), Catch::Contains("1 to 200 blocks"));
  CHECK_THROWS_WITH(built("resnet18", {.blocks = {1, 1, 1, 1, 1, 1, 1}}),
                    Catch::Contains("at most 6 stages"));
}
