#include "cpu/kernels_isa.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep::cpu {
namespace {
#include "cpu/vector.inc"
INLINE void store(bf16*, v16) { __builtin_unreachable(); }  // bf16 needs AVX512-BF16
#include "cpu/kernels.inc"
}  // namespace

const Kernels kernels_fp32_x86_64 = table<float>();
const FloatKernels kernels_float_x86_64 = {add, sgd};

}  // namespace lockstep::cpu
