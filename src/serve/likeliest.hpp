#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::serve {

/// The `top` classes with the largest values, of equal ones the first. REQUIRES: all are numbers,
/// and there are as many.
std::vector<std::size_t> likeliest(std::span<const float> values, std::size_t top);

/// The softmax of the logits, computed in double.
std::vector<float> probabilities_of(std::span<const float> logits);

}  // namespace lockstep::serve
