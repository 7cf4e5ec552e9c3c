#pragma once

#include <cstddef>

#include "lockstep/backend/program.hpp"

namespace lockstep::cpu {

/// Cross entropy of one row against (1 - smoothing) * (mix at label a, 1 - mix at label b) +
/// smoothing / classes. Adds it to the metrics, with whether the row is right; if `gradient` is
/// given, writes scale * d loss / d logits. A padding row is not counted and has gradient 0. NaN
/// logits give a NaN loss and are never right.
void cross_entropy(const float* logits, std::size_t classes, const data::Target& target,
                   float smoothing, float scale, backend::Metrics& metrics, float* gradient);

}  // namespace lockstep::cpu
