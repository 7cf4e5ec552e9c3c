#include "cpu/kernels_isa.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

namespace lockstep::cpu {
namespace {
#include "cpu/vector.inc"

#include "cpu/kernels.inc"
}  // namespace

const Kernels kernels_fp32_avx512 = table<float>();
const FloatKernels kernels_float_avx512 = {add, sgd};

}  // namespace lockstep::cpu
