#pragma once

#include "ports/cpu/kernels/kernel_sets.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"
#include "ports/cpu/kernels/winograd/winograd.hpp"

namespace lockstep::cpu {

extern const KernelSet avx2_set, avx512_set;
extern const Kernels kernels_bf16_avx512;
extern const WinogradKernels winograd_avx512, winograd_avx512_bf16, winograd_pairs_avx512_bf16;

void tap_gradient_avx512_bf16(const TapShape& shape, std::size_t rows, const void* x,
                              const void* dy, bool add, float* gradient, std::byte* scratch);

}  // namespace lockstep::cpu
