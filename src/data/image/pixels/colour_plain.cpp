#include "data/image/pixels/colour_kernels.hpp"

namespace lockstep::data {
namespace {

#include "data/image/pixels/colour_kernels.inc"

}  // namespace

const ColourKernels colour_plain = {stretch, blend, grey_sum, saturate, turn, sharpen};

}  // namespace lockstep::data
