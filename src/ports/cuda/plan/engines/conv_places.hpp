#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// The graph's numbers for its tensors.
enum Operand : std::int64_t {
  operand_x = 1,
  operand_w,
  operand_y,
  operand_scale,
  operand_shift,
  operand_mean,
  operand_inverse_deviation,
  operand_gamma,
  operand_beta,
  operand_sum,
  operand_square_sum,
  operand_g,              // a fused data gradient reads x and writes this
  operand_gradient_sums,  // and gradient_sum_arrays - 1 more
};
inline Operand gradient_sum(std::size_t i) {
  return static_cast<Operand>(operand_gradient_sums + static_cast<std::int64_t>(i));
}

using Places = std::unordered_map<std::int64_t, void*>;

/// The memory of each tensor of a plan's graph.
inline Places places_of(const ConvOperands& operands, Pass pass, const ConvFusion& fusion,
                        std::size_t channels) {
  const NormOperands& norm = operands.norm;
  Places places;
  const auto put = [&](Operand operand, const void* at) {
    places[operand] = const_cast<void*>(at);
  };
  put(operand_x, operands.x);
  put(operand_w, operands.w);
  put(operand_y, operands.y);
  if (pass == Pass::forward && fusion.sums) {
    put(operand_sum, norm.sum);
    put(operand_square_sum, norm.square_sum);
  }
  if (fusion.normalised) {
    put(operand_scale, norm.scale);
    put(operand_shift, norm.shift);
  }
  if (!fusion.norm_gradient) return places;
  put(operand_g, norm.g);
  put(operand_mean, norm.mean);
  put(operand_inverse_deviation, norm.inverse_deviation);
  put(operand_gamma, norm.gamma);
  put(operand_beta, norm.beta);
  for (std::size_t i = 0; i < gradient_sum_arrays; ++i)
    put(gradient_sum(i), norm.gradient_sums + i * channels);
  return places;
}

}  // namespace lockstep::cuda
