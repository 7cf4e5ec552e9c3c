#include "lockstep/nn/resnet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::nn {

namespace {

struct Known {
  const char* name;
  bool cifar;
  Design design;
};

// He et al., "Deep residual learning for image recognition", CVPR 2016: table 1 and section 4.2 (6n
// + 2 layers). Zagoruyko and Komodakis, "Wide residual networks", 2016: the wide ones are
// torchvision's, with twice the channels inside the bottlenecks. Xie et al., "Aggregated residual
// transformations for deep neural networks", CVPR 2017: groups (by) channels of each.
const std::vector<Known>& known_models() {
  const auto cifar = [](const char* name, std::size_t n) {
    return Known{name, true, {Stem::small, BlockKind::basic, {n, n, n}, 16, 0}};
  };
  const auto basic = [](const char* name, const std::vector<std::size_t>& blocks) {
    return Known{name, false, {Stem::large, BlockKind::basic, blocks, 64, 0}};
  };
  const auto deep = [](const char* name, const std::vector<std::size_t>& blocks,
                       std::size_t inner = 64, std::size_t groups = 1) {
    return Known{name, false, {Stem::large, BlockKind::bottleneck, blocks, 64, inner, groups}};
  };
  static const std::vector<Known> all = {
      cifar("resnet20", 3),
      cifar("resnet32", 5),
      cifar("resnet44", 7),
      cifar("resnet56", 9),
      cifar("resnet110", 18),
      basic("resnet18", {2, 2, 2, 2}),
      basic("resnet34", {3, 4, 6, 3}),
      deep("resnet50", {3, 4, 6, 3}),
      deep("resnet101", {3, 4, 23, 3}),
      deep("resnet152", {3, 8, 36, 3}),
      deep("wide_resnet50_2", {3, 4, 6, 3}, 128),
      deep("wide_resnet101_2", {3, 4, 23, 3}, 128),
      deep("resnext50_32x4d", {3, 4, 6, 3}, 32 * 4, 32),
      deep("resnext101_32x8d", {3, 4, 23, 3}, 32 * 8, 32),
      deep("resnext101_64x4d", {3, 4, 23, 3}, 64 * 4, 64),
  };
  return all;
}

/// The model's design with what differs from it.
Design complete(const Known& known, const Design& given) {
  Design design = known.design;
  if (given.stem != Stem::of_model) design.stem = given.stem;
  if (given.block != BlockKind::of_model) design.block = given.block;
  if (!given.blocks.empty()) design.blocks = given.blocks;
  // Bottlenecks follow the width, unless they are given, too.
  if (given.width > 0 && design.inner > 0) design.inner = design.inner * given.width / design.width;
  if (given.width > 0) design.width = given.width;
  if (design.inner == 0) design.inner = design.width;
  if (given.inner > 0) design.inner = given.inner;
  if (design.groups == 0 || design.block == BlockKind::basic) design.groups = 1;
  if (given.groups > 0) design.groups = given.groups;
  return design;
}

void require_possible(const std::string& model, const Design& design, const Design& given) {
  constexpr std::size_t most_width = 4096;
  require(design.blocks.size() <= most_stages,
          fmt::format("{}: at most {} stages, not {}", model, most_stages, design.blocks.size()));
  for (const std::size_t blocks : design.blocks)
    require(blocks >= 1 && blocks <= most_blocks,
            fmt::format("{}: a stage has 1 to {} blocks, not {}", model, most_blocks, blocks));
  for (const std::size_t channels : {design.width, design.inner})
    require(channels % 16 == 0 && channels >= 16 && channels <= most_width,
            fmt::format("{}: a width is a multiple of 16 channels up to {}, not {}", model,
                        most_width, channels));
  require(design.stem != Stem::deep || design.width % 32 == 0,
          fmt::format("{}: a deep stem has half the width, so that is a multiple of 32, not {}",
                      model, design.width));
  require(design.block == BlockKind::bottleneck || (given.inner == 0 && given.groups <= 1),
          model + ": only bottlenecks have a width and groups inside");
  require(design.inner % design.groups == 0,
          fmt::format("{}: {} groups do not divide the {} channels inside bottlenecks", model,
                      design.groups, design.inner));
}

class Builder {
 public:
  Builder(const ResNetSpec& spec, const Known& known)
      : spec_(spec), cifar_(known.cifar), design_(complete(known, spec.design)) {
    require_possible(spec.model, design_, spec.design);
    network_.name = spec.model;
    network_.input = {spec.channels, spec.height, spec.width};
    network_.classes = spec.classes;
    Node input;
    input.name = "input";
    input.shape = network_.input;
    network_.nodes.push_back(input);
  }

  Network build() {
    std::size_t x = stem();
    for (std::size_t stage = 0; stage < design_.blocks.size(); ++stage) {
      for (std::size_t i = 0; i < design_.blocks[stage]; ++i) {
        const std::size_t stride = stage > 0 && i == 0 ? 2 : 1;
        x = block(fmt::format("layer{}.{}", stage + 1, i), x, stage, stride);
      }
    }
    Node pool = after(x, "avgpool", Op::global_avg_pool);
    pool.shape = {shape(x).channels, 1, 1};
    x = put(pool);
    Node fc = after(x, "fc", Op::linear);
    fc.shape = {spec_.classes, 1, 1};
    fc.bias = true;
    x = put(fc);
    put(after(x, "loss", Op::loss));
    validate(network_);
    return std::move(network_);
  }

 private:
  const Shape& shape(std::size_t node) const { return network_.nodes[node].shape; }

  Node after(std::size_t input, std::string name, Op op) const {
    Node node;
    node.name = std::move(name);
    node.op = op;
    node.inputs = {input};
    node.shape = shape(input);
    return node;
  }

  std::size_t put(Node node) {
    network_.nodes.push_back(std::move(node));
    return network_.nodes.size() - 1;
  }

  std::size_t window(std::size_t input, const std::string& name, Op op, std::size_t channels,
                     std::size_t kernel, std::size_t stride, std::size_t padding,
                     std::size_t groups = 1) {
    Node node = after(input, name, op);
    node.groups = groups;
    node.kernel = kernel;
    node.stride = stride;
    node.padding = padding;
    const Shape& in = shape(input);
    require(in.height + 2 * padding >= kernel && in.width + 2 * padding >= kernel,
            fmt::format("{}: images of {}x{} are too small for this model", spec_.model,
                        spec_.height, spec_.width));
    node.shape = {channels, (in.height + 2 * padding - kernel) / stride + 1,
                  (in.width + 2 * padding - kernel) / stride + 1};
    return put(node);
  }

  std::size_t conv(std::size_t input, const std::string& name, std::size_t channels,
                   std::size_t kernel, std::size_t stride, std::size_t groups = 1) {
    return window(input, name, Op::conv, channels, kernel, stride, kernel / 2, groups);
  }

  std::size_t batch_norm(std::size_t input, const std::string& name, bool zero_init = false) {
    Node node = after(input, name, Op::batch_norm);
    node.zero_init = zero_init;
    return put(node);
  }

  std::size_t relu(std::size_t input, const std::string& name) {
    return put(after(input, name, Op::relu));
  }

  /// The deep one's convolutions are named as timm names them.
  std::size_t stem() {
    const bool small = design_.stem == Stem::small;
    std::size_t x = design_.stem == Stem::deep
                        ? deep_convolutions()
                        : conv(0, "conv1", design_.width, small ? 3 : 7, small ? 1 : 2);
    x = relu(batch_norm(x, "bn1"), "relu");
    if (small) return x;
    return window(x, "maxpool", Op::max_pool, shape(x).channels, 3, 2, 1);
  }

  std::size_t deep_convolutions() {
    std::size_t x = conv(0, "conv1.0", design_.width / 2, 3, 2);
    x = relu(batch_norm(x, "conv1.1"), "conv1.2");
    x = conv(x, "conv1.3", design_.width / 2, 3, 1);
    x = relu(batch_norm(x, "conv1.4"), "conv1.5");
    return conv(x, "conv1.6", design_.width, 3, 1);
  }

  std::size_t block(const std::string& name, std::size_t input, std::size_t stage,
                    std::size_t stride) {
    const bool bottleneck = design_.block == BlockKind::bottleneck;
    const std::size_t channels = (design_.width << stage) * (bottleneck ? 4 : 1),
                      inner = design_.inner << stage;
    std::size_t x = input;
    if (bottleneck) {
      // v1.5: the 3x3 convolution has the stride, as in torchvision.
      x = relu(batch_norm(conv(x, name + ".conv1", inner, 1, 1), name + ".bn1"), name + ".relu1");
      x = relu(
          batch_norm(conv(x, name + ".conv2", inner, 3, stride, design_.groups), name + ".bn2"),
          name + ".relu2");
      x = batch_norm(conv(x, name + ".conv3", channels, 1, 1), name + ".bn3",
                     spec_.zero_init_residual);
    } else {
      x = relu(batch_norm(conv(x, name + ".conv1", channels, 3, stride), name + ".bn1"),
               name + ".relu1");
      x = batch_norm(conv(x, name + ".conv2", channels, 3, 1), name + ".bn2",
                     spec_.zero_init_residual);
    }
    const std::size_t skip = shortcut(name, input, channels, stride);
    Node add = after(x, name + ".add", Op::add);
    add.inputs = {x, skip};
    return relu(put(add), name + ".relu");
  }

  std::size_t shortcut(const std::string& name, std::size_t input, std::size_t channels,
                       std::size_t stride) {
    if (stride == 1 && channels == shape(input).channels) return input;
    const bool pad =
        spec_.shortcut == Shortcut::pad ||
        (spec_.shortcut == Shortcut::family_default && cifar_ && design_.block == BlockKind::basic);
    if (spec_.shortcut == Shortcut::average) {
      if (stride > 1) input = cells(input, name + ".downsample.0", stride);
      return batch_norm(conv(input, name + ".downsample.1", channels, 1, 1),
                        name + ".downsample.2");
    }
    if (!pad)
      return batch_norm(conv(input, name + ".downsample.0", channels, 1, stride),
                        name + ".downsample.1");
    require(design_.block == BlockKind::basic,
            spec_.model + ": option A shortcuts exist only without bottlenecks");
    return cells(input, name + ".shortcut", stride, channels);
  }

  /// One pixel for each cell of stride x stride: their mean, or the first with more channels.
  std::size_t cells(std::size_t input, const std::string& name, std::size_t stride,
                    std::optional<std::size_t> channels = {}) {
    Node node = after(input, name, channels ? Op::subsample_pad : Op::avg_pool);
    node.stride = stride;
    if (node.op == Op::avg_pool) node.kernel = stride;
    if (channels) node.shape.channels = *channels;
    node.shape = output_shape(network_, node);
    return put(node);
  }

  const ResNetSpec& spec_;
  const bool cifar_;
  const Design design_;
  Network network_;
};

auto find_model(const std::string& model) {
  return std::find_if(known_models().begin(), known_models().end(),
                      [&](const Known& known) { return model == known.name; });
}

}  // namespace

std::vector<std::string> resnet_models() {
  std::vector<std::string> names;
  for (const Known& known : known_models()) names.push_back(known.name);
  return names;
}

ResNetSpec usual_resnet(const std::string& model, std::size_t image, std::size_t classes) {
  const auto found = find_model(model);
  const bool cifar = found != known_models().end() && found->cifar;
  ResNetSpec spec;
  spec.model = model;
  spec.height = spec.width = image ? image : cifar ? 32 : 224;
  spec.classes = classes ? classes : cifar ? 10 : 1000;
  return spec;
}

Network resnet(const ResNetSpec& spec) {
  const auto found = find_model(spec.model);
  require(found != known_models().end(),
          fmt::format("model \"{}\" is not known{} (the models are {})", spec.model,
                      did_you_mean(spec.model, resnet_models()), join(resnet_models(), ", ")));
  require(
      spec.classes >= (spec.classifies ? 2 : 1),
      fmt::format("{}: a classifier needs 2 classes or more, not {}", spec.model, spec.classes));
  return Builder(spec, *found).build();
}

}  // namespace lockstep::nn
