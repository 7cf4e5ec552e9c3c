#include <immintrin.h>

#include "cpu/kernels_isa.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace lockstep::cpu {
namespace {
#include "cpu/vector.inc"
INLINE void store(bf16* p, v16 v) {
  *reinterpret_cast<h16_unaligned*>(p) = (h16)_mm512_cvtneps_pbh((__m512)v);
}
#include "cpu/kernels.inc"
}  // namespace

const Kernels kernels_bf16_avx512 = table<bf16>();

}  // namespace lockstep::cpu
