#pragma once

#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// What a shortcut does when the shape changes: option A of He et al. 2016 (every second pixel,
/// zeros for the new channels, half on each side) or a 1x1 convolution with batch norm (option B,
/// torchvision's "downsample").
enum class Shortcut { family_default, pad, conv };

struct ResNetSpec {
  std::string model = "resnet20";  ///< resnet20/32/44/56/110 (CIFAR family), resnet18/34/50/101/152
                                   ///< (ImageNet, v1.5)
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
/// too small for the model's strides, or option A in the ImageNet family's bottlenecks.
Network resnet(const ResNetSpec& spec);

}  // namespace lockstep::nn

template <>
struct lockstep::Choices<lockstep::nn::Shortcut> {
  using enum nn::Shortcut;
  static constexpr Choice<nn::Shortcut> all[] = {
      {family_default, "default"}, {pad, "pad"}, {conv, "conv"}};
};
