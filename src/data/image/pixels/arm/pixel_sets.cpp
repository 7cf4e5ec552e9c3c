#include "data/image/pixels/arm/pixel_sets.hpp"

namespace lockstep::data {

// All 64-bit processors have NEON. The compiler makes its instructions of the plain loops of
// colour, but not of resampling's shuffles.
std::vector<const ColourKernels*> colour_sets() { return {&colour_plain}; }

std::vector<const ResampleKernels*> resample_sets() { return {&resample_neon, &resample_plain}; }

}  // namespace lockstep::data
