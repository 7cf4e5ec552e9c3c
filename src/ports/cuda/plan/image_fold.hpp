#pragma once

#include <optional>

#include "ports/cuda/kernels/image/fold.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// How a program folds the image and the weights of the only convolution that reads it. Nothing
/// where it does not: without a stride, in 32 bits, in a stage that has no image, and where a
/// folded pixel would have more than most_folded_channels. The arena and all files keep the
/// network's weights.
std::optional<Fold> image_fold(const nn::Network& network, backend::Precision precision);

/// The folded convolution: of stride 1, one pixel wide and without padding.
ConvShape folded_shape(const Fold& fold, std::size_t batch);

}  // namespace lockstep::cuda
