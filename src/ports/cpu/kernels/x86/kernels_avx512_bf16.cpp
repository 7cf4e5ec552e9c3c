#include <immintrin.h>

#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/kernels.inc"
#include "ports/cpu/kernels/x86/bf16.inc"
}  // namespace

const Kernels kernels_bf16_avx512 = table<bf16>();

}  // namespace lockstep::cpu
