#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// (value / 255 - mean) / deviation of whole pixels of 1 to 4 channels, as floats. Training does
/// this on the device (backend/arithmetic.hpp). This version lets the input pipeline be measured
/// with all that other pipelines do.
void normalise(const DataSetInfo& info, std::span<const std::uint8_t> pixels, float* to);

}  // namespace lockstep::data
