#include "data/image/pixels/x86/pixel_sets.hpp"

namespace lockstep::data {

std::vector<const ColourKernels*> colour_sets() {
  std::vector<const ColourKernels*> sets;
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    sets.push_back(&colour_avx512);
  if (__builtin_cpu_supports("avx2")) sets.push_back(&colour_avx2);
  sets.push_back(&colour_plain);
  return sets;
}

std::vector<const ResampleKernels*> resample_sets() {
  std::vector<const ResampleKernels*> sets;
  if (__builtin_cpu_supports("avx512f")) sets.push_back(&resample_avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    sets.push_back(&resample_avx2);
  sets.push_back(&resample_plain);
  return sets;
}

}  // namespace lockstep::data
