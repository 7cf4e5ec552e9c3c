#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/formats.inc"
#include "ports/cpu/kernels/kernels.inc"
#include "ports/cpu/kernels/thin.inc"
#include "ports/cpu/kernels/update.inc"

#include "ports/cpu/kernels/products.inc"
}  // namespace

const Kernels kernels_fp32_avx512 = table<float>();
const FloatKernels kernels_float_avx512 = {add,     sgd,   lars,    lamb,  direction,
                                           squares, scale, average, linear};
const VectorKernels kernels_vector_avx512 = vector_table();
const ThinTable kernels_thin_avx512 = thin_tables();
const PanelKernels kernels_panel_avx512 = panel_table<8, 2>();

}  // namespace lockstep::cpu
