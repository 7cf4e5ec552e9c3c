#include "data/image/pixels/colour_kernels.hpp"
#include "data/image/pixels/resample_kernels.hpp"

namespace lockstep::data {

std::vector<const ColourKernels*> colour_sets() { return {&colour_plain}; }

std::vector<const ResampleKernels*> resample_sets() { return {&resample_plain}; }

}  // namespace lockstep::data
