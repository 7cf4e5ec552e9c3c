#pragma once

#include "data/image/pixels/colour_kernels.hpp"
#include "data/image/pixels/resample_kernels.hpp"

namespace lockstep::data {

extern const ResampleKernels resample_neon;

}  // namespace lockstep::data
