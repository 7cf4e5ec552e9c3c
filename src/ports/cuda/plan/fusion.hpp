#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "ports/cuda/kernels/image/fold.hpp"
#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// What a unit's convolution and the batch norms next to it cost with a fusion, in any measure;
/// infinite where a pass has no engine.
using FusionCost = std::function<double(std::size_t unit, const ConvFusion& fusion)>;

/// Chooses which parts of the neighbouring batch norms each unit's convolution computes, one entry
/// per unit: what costs least, and of equal ones the one that fuses more. Only the reader of a
/// batch norm that nothing else reads, through a ReLU and without a sum, can apply it or make the
/// sums for its gradients. Every convolution can make the sums for the batch norm after it.
std::vector<ConvFusion> fuse_norms(const std::vector<Unit>& units, const FusionCost& cost);

/// The fusion of each unit's convolution, if the program asks for it. While the planner is tuned,
/// by measuring the convolutions and the parts of batch norms that they would save, and the choice
/// is kept where the engines are. Else all parts that have engines are fused.
std::vector<ConvFusion> choose_fusions(const nn::Network& network, const std::vector<Unit>& units,
                                       const backend::ProgramSpec& spec, ConvPlanner& planner);

/// "applied, sums, gradient": the parts of a fusion, or "apart".
std::string to_string(const ConvFusion& fusion);

/// How a program folds the image and the weights of the only convolution that reads it. Nothing
/// where it does not: without a stride, in 32 bits, in a stage that has no image, and where a
/// folded pixel would have more than most_folded_channels. The arena and all files keep the
/// network's weights.
std::optional<Fold> image_fold(const nn::Network& network, backend::Precision precision);

/// The folded convolution: of stride 1, one pixel wide and without padding.
ConvShape folded_shape(const Fold& fold, std::size_t batch);

}  // namespace lockstep::cuda
