#include "data/image/pixels/x86/pixel_sets.hpp"

#pragma GCC target("avx2")

namespace lockstep::data {
namespace {

#include "data/image/pixels/colour_kernels.inc"

}  // namespace

const ColourKernels colour_avx2 = {stretch, blend, grey_sum, saturate, turn, sharpen};

}  // namespace lockstep::data
