#include "cpu/kernels_isa.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

namespace lockstep::cpu {
namespace {
#include "cpu/vector.inc"
INLINE void store(bf16*, v16) { __builtin_unreachable(); }  // bf16 needs AVX512-BF16
#include "cpu/kernels.inc"
}  // namespace

const Kernels kernels_fp32_avx512 = table<float>();
const FloatKernels kernels_float_avx512 = {add, sgd};

}  // namespace lockstep::cpu
