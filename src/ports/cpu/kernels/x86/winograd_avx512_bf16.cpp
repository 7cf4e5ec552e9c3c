#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/winograd/winograd_tiles.inc"
#include "ports/cpu/kernels/x86/bf16.inc"

#include "ports/cpu/kernels/winograd/winograd.inc"
#include "ports/cpu/kernels/winograd/winograd_forms.inc"
}  // namespace

const WinogradKernels winograd_avx512_bf16 = winograd_table<Four, Floats, bf16>();

}  // namespace lockstep::cpu
