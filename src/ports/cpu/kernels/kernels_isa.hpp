#pragma once

#include "ports/cpu/kernels/kernels.hpp"

namespace lockstep::cpu {

// One table for each file that compiles kernels.inc: the same source under other target options.
extern const Kernels kernels_fp32_x86_64, kernels_fp32_avx2, kernels_fp32_avx512,
    kernels_bf16_avx512;
extern const FloatKernels kernels_float_x86_64, kernels_float_avx2, kernels_float_avx512;
extern const VectorKernels kernels_vector_x86_64, kernels_vector_avx2, kernels_vector_avx512;
extern const ThinTable kernels_thin_x86_64, kernels_thin_avx2, kernels_thin_avx512;
extern const PanelKernels kernels_panel_x86_64, kernels_panel_avx2, kernels_panel_avx512;

}  // namespace lockstep::cpu
