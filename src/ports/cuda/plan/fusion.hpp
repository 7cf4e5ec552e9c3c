#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// Whether all passes of a unit's convolution have engines with this fusion.
using CanFuse = std::function<bool(std::size_t unit, const ConvFusion& fusion)>;

/// Chooses which parts of the neighbouring batch norms each unit's convolution computes, one entry
/// per unit. If only one convolution reads a batch norm, through a ReLU and without a sum, that
/// convolution applies it. Every convolution makes the sums for the batch norm after it. Where
/// `possible` has no engines for both: only the sums; where it has none for those: nothing.
std::vector<ConvFusion> fuse_norms(const std::vector<Unit>& units, const CanFuse& possible);

}  // namespace lockstep::cuda
