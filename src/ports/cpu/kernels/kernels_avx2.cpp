#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/kernels.hpp"

#pragma GCC target("avx2,fma")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/formats.inc"
#include "ports/cpu/kernels/kernels.inc"
#include "ports/cpu/kernels/thin.inc"
#include "ports/cpu/kernels/update.inc"

#include "ports/cpu/kernels/products.inc"
}  // namespace

const Kernels kernels_fp32_avx2 = table<float>();
const FloatKernels kernels_float_avx2 = {add,     sgd,   lars,    lamb,  direction,
                                         squares, scale, average, linear};
const VectorKernels kernels_vector_avx2 = vector_table();
const ThinTable kernels_thin_avx2 = thin_tables();
const PanelKernels kernels_panel_avx2 = panel_table<4, 1>();

}  // namespace lockstep::cpu
