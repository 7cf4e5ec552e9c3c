#include "data/image/pixels/x86/pixel_sets.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

namespace lockstep::data {
namespace {

#include "data/image/pixels/colour_kernels.inc"

}  // namespace

const ColourKernels colour_avx512 = {stretch, blend, grey_sum, saturate, turn, sharpen};

}  // namespace lockstep::data
