#pragma once

#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// What a shortcut does when the shape changes: option A of He et al. 2016 (every second pixel,
/// zeros for the new channels, half on each side) or a 1x1 convolution with batch norm (option B,
/// torchvision's "downsample"); average: the latter with stride 1, over means of 2 x 2 pixels
/// (ResNet-D of He et al., "Bag of tricks for image classification", CVPR 2019, section 4.1).
enum class Shortcut { family_default, pad, conv, average };

/// The layers before the first block. small: a convolution of 3 x 3 pixels with stride 1, for
/// images of some 32 to 64 pixels; large: one of 7 x 7 with stride 2, and max pooling with
/// stride 2; deep: three of 3 x 3 instead of the one, the first with stride 2 and the first two of
/// half the width (ResNet-C and D).
enum class Stem { of_model, small, large, deep };

/// basic: two convolutions of 3 x 3; bottleneck: one between two of 1 x 1, the last of which makes
/// 4 times the stage's width (v1.5: the middle one has the stride).
enum class BlockKind { of_model, basic, bottleneck };

/// The most stages, and blocks of a stage, that a network has.
inline constexpr std::size_t most_stages = 6, most_blocks = 200;

/// A network of ResNet's kind. What is 0, empty or of_model is as in the model of that name.
struct Design {
  Stem stem = Stem::of_model;
  BlockKind block = BlockKind::of_model;
  std::vector<std::size_t> blocks = {};  ///< of each stage, the width of which doubles
  std::size_t width = 0;                 ///< of the first stage, in channels
  std::size_t inner = 0;   ///< channels between a bottleneck's 1 x 1, in the first stage
  std::size_t groups = 0;  ///< of the convolution between them
  bool operator==(const Design&) const = default;
};

struct ResNetSpec {
  std::string model = "resnet20";  ///< resnet20/32/44/56/110 (CIFAR family), resnet18/34/50/101/152
                                   ///< wide_resnet50_2/101_2, resnext50_32x4d and
                                   ///< resnext101_32x8d/64x4d (ImageNet, v1.5)
  Design design = {};              ///< what differs from that model
  std::size_t classes = 10;        ///< or other outputs
  bool classifies = true;          ///< else one output is enough
  std::size_t channels = 3, height = 32, width = 32;  ///< of the input image
  /// Pad for the CIFAR family, conv for the ImageNet family.
  Shortcut shortcut = Shortcut::family_default;
  bool zero_init_residual = false;  ///< last batch norm of each branch starts with scale 0
};

/// The names that `resnet` accepts, in the order of the README.
std::vector<std::string> resnet_models();

/// The model as its family is usually trained: 32 x 32 pixels and 10 classes (CIFAR-10), or 224 x
/// 224 and 1000 (ImageNet). `image` and `classes` override this unless they are 0.
ResNetSpec usual_resnet(const std::string& model, std::size_t image, std::size_t classes);

/// Builds the network. Throws InputError for an unknown model (listing the known ones), an image
/// too small for the model's strides, a width that is no multiple of 16, groups that do not divide
/// it, or option A in bottlenecks.
Network resnet(const ResNetSpec& spec);

}  // namespace lockstep::nn

template <>
struct lockstep::Choices<lockstep::nn::Shortcut> {
  using enum nn::Shortcut;
  static constexpr Choice<nn::Shortcut> all[] = {
      {family_default, "default"}, {pad, "pad"}, {conv, "conv"}, {average, "average"}};
};

template <>
struct lockstep::Choices<lockstep::nn::Stem> {
  using enum nn::Stem;
  static constexpr Choice<nn::Stem> all[] = {
      {of_model, "default"}, {small, "small"}, {large, "large"}, {deep, "deep"}};
};

template <>
struct lockstep::Choices<lockstep::nn::BlockKind> {
  using enum nn::BlockKind;
  static constexpr Choice<nn::BlockKind> all[] = {
      {of_model, "default"}, {basic, "basic"}, {bottleneck, "bottleneck"}};
};
