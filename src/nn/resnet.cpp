#include "lockstep/nn/resnet.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::nn {

namespace {

struct Family {
  const char* name;
  bool cifar;
  bool bottleneck;
  std::vector<std::size_t> blocks;  // per stage
};

// He et al., "Deep residual learning for image recognition", CVPR 2016: table 1 and section 4.2 (6n
// + 2 layers).
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"resnet20", true, false, {3, 3, 3}},      {"resnet32", true, false, {5, 5, 5}},
      {"resnet44", true, false, {7, 7, 7}},      {"resnet56", true, false, {9, 9, 9}},
      {"resnet110", true, false, {18, 18, 18}},  {"resnet18", false, false, {2, 2, 2, 2}},
      {"resnet34", false, false, {3, 4, 6, 3}},  {"resnet50", false, true, {3, 4, 6, 3}},
      {"resnet101", false, true, {3, 4, 23, 3}}, {"resnet152", false, true, {3, 8, 36, 3}},
  };
  return all;
}

class Builder {
 public:
  explicit Builder(const ResNetSpec& spec, const Family& family) : spec_(spec), family_(family) {
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
    const std::size_t expansion = family_.bottleneck ? 4 : 1;
    std::size_t width = family_.cifar ? 16 : 64;
    for (std::size_t stage = 0; stage < family_.blocks.size(); ++stage, width *= 2) {
      for (std::size_t i = 0; i < family_.blocks[stage]; ++i) {
        const std::size_t stride = stage > 0 && i == 0 ? 2 : 1;
        x = block(fmt::format("layer{}.{}", stage + 1, i), x, width, width * expansion, stride);
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
                     std::size_t kernel, std::size_t stride, std::size_t padding) {
    Node node = after(input, name, op);
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
                   std::size_t kernel, std::size_t stride) {
    return window(input, name, Op::conv, channels, kernel, stride, kernel / 2);
  }

  std::size_t batch_norm(std::size_t input, const std::string& name, bool zero_init = false) {
    Node node = after(input, name, Op::batch_norm);
    node.zero_init = zero_init;
    return put(node);
  }

  std::size_t relu(std::size_t input, const std::string& name) {
    return put(after(input, name, Op::relu));
  }

  std::size_t stem() {
    std::size_t x =
        conv(0, "conv1", family_.cifar ? 16 : 64, family_.cifar ? 3 : 7, family_.cifar ? 1 : 2);
    x = relu(batch_norm(x, "bn1"), "relu");
    if (family_.cifar) return x;
    return window(x, "maxpool", Op::max_pool, shape(x).channels, 3, 2, 1);
  }

  std::size_t block(const std::string& name, std::size_t input, std::size_t width,
                    std::size_t channels, std::size_t stride) {
    std::size_t x = input;
    if (family_.bottleneck) {
      // v1.5: the 3x3 convolution has the stride, as in torchvision.
      x = relu(batch_norm(conv(x, name + ".conv1", width, 1, 1), name + ".bn1"), name + ".relu1");
      x = relu(batch_norm(conv(x, name + ".conv2", width, 3, stride), name + ".bn2"),
               name + ".relu2");
      x = batch_norm(conv(x, name + ".conv3", channels, 1, 1), name + ".bn3",
                     spec_.zero_init_residual);
    } else {
      x = relu(batch_norm(conv(x, name + ".conv1", width, 3, stride), name + ".bn1"),
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
    const bool pad = spec_.shortcut == Shortcut::pad ||
                     (spec_.shortcut == Shortcut::family_default && family_.cifar);
    if (!pad)
      return batch_norm(conv(input, name + ".downsample.0", channels, 1, stride),
                        name + ".downsample.1");
    require(!family_.bottleneck,
            spec_.model + ": option A shortcuts exist only without bottlenecks");
    Node node = after(input, name + ".shortcut", Op::subsample_pad);
    node.stride = stride;
    node.shape = {channels, (shape(input).height + stride - 1) / stride,
                  (shape(input).width + stride - 1) / stride};
    return put(node);
  }

  const ResNetSpec& spec_;
  const Family& family_;
  Network network_;
};

auto find_family(const std::string& model) {
  return std::find_if(families().begin(), families().end(),
                      [&](const Family& family) { return model == family.name; });
}

}  // namespace

std::vector<std::string> resnet_models() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.name);
  return names;
}

ResNetSpec usual_resnet(const std::string& model, std::size_t image, std::size_t classes) {
  const auto found = find_family(model);
  const bool cifar = found != families().end() && found->cifar;
  ResNetSpec spec;
  spec.model = model;
  spec.height = spec.width = image ? image : cifar ? 32 : 224;
  spec.classes = classes ? classes : cifar ? 10 : 1000;
  return spec;
}

Network resnet(const ResNetSpec& spec) {
  const auto found = find_family(spec.model);
  require(found != families().end(),
          fmt::format("model \"{}\" is not known{} (the models are {})", spec.model,
                      did_you_mean(spec.model, resnet_models()), join(resnet_models(), ", ")));
  require(
      spec.classes >= (spec.classifies ? 2 : 1),
      fmt::format("{}: a classifier needs 2 classes or more, not {}", spec.model, spec.classes));
  return Builder(spec, *found).build();
}

}  // namespace lockstep::nn
