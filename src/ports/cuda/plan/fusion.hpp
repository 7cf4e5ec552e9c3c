#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ports/cuda/lowering.hpp"
#include "ports/cuda/plan/convolution.hpp"

namespace lockstep::cuda {

/// Whether there are engines for all passes of the convolution of a unit with this fusion.
using CanFuse = std::function<bool(std::size_t unit, const ConvFusion& fusion)>;

/// What each unit's convolution takes in of the batch norms beside it, one entry a unit. A batch
/// norm whose value only one convolution reads, through a ReLU and without a sum, is applied by
/// that convolution; every convolution makes the sums for the batch norm behind it. Where
/// `possible` has no engines for both, the sums alone; else nothing.
std::vector<ConvFusion> fuse_norms(const std::vector<Unit>& units, const CanFuse& possible);

}  // namespace lockstep::cuda
