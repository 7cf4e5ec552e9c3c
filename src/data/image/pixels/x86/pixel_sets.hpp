#pragma once

#include "data/image/pixels/colour_kernels.hpp"
#include "data/image/pixels/resample_kernels.hpp"

namespace lockstep::data {

extern const ColourKernels colour_avx2, colour_avx512;
extern const ResampleKernels resample_avx2, resample_avx512;

}  // namespace lockstep::data
