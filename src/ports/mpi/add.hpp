#pragma once

#include <cstddef>

namespace lockstep::comm {

/// total[i] += part[i] for i in [0, count); the two must not overlap.
void add(float* total, const float* part, std::size_t count);

}  // namespace lockstep::comm
