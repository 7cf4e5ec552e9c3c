#pragma once

#include <cstdint>
#include <span>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

struct InitSpec {
  std::uint64_t seed = 1;
};

/// Fills `values` (plain layout) with the tensor's initial values, a pure function of seed and
/// name: He normal with fan-out for convolutions (He et al. 2015; torchvision's choice), uniform
/// ±1/sqrt(in) for the linear layer (PyTorch's default), scale 1 (0 where the node has zero_init),
/// shift 0, running mean 0, running variance 1.
void initialise(const Network& network, const Tensor& tensor, const InitSpec& spec,
                std::span<float> values);

}  // namespace lockstep::nn
