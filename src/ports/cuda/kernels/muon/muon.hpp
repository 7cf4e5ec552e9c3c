#pragma once

#include "ports/cuda/kernels/kernels.hpp"

// Muon (optim/muon.hpp) on a GPU. All kernels change nothing in a step whose gradients overflowed.
namespace lockstep::cuda {

/// The first part, over an update's chunks: what is no filter learns by SGD, and filters get their
/// directions, without the loss scale, in place of their gradients.
struct MuonArgs {
  const float* adaptive;  ///< per slice: 1 for a filter
  float rest_momentum = 0;
  float* directions;  ///< the gradients of UpdateArgs
};
void muon_moments(const UpdateArgs& args, const MuonArgs& muon, cudaStream_t stream);

/// One filter, which lies in the arena with its outputs' rows one after the other.
struct MuonFilter {
  std::size_t outputs = 0, columns = 0;
  std::size_t slice = 0, offset = 0;  ///< offset: floats in the arena
  /// Sums of squares per slice: of the weights and of the directions.
  const double *weight_sums, *direction_sums;
  const float* directions;  ///< of the whole arena
  float* room;              ///< [optim::muon_room(outputs, columns)]
};
/// The second part, for each filter: its iterations and its weights' step.
void muon_filter(const UpdateArgs& args, const MuonFilter& filter, int iterations,
                 cudaStream_t stream);

}  // namespace lockstep::cuda
