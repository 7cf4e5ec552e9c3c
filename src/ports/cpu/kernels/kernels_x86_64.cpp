#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/kernels.hpp"

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

const Kernels kernels_fp32_x86_64 = table<float>();
const FloatKernels kernels_float_x86_64 = {add,     sgd,   lars,    lamb,  direction,
                                           squares, scale, average, linear};
const VectorKernels kernels_vector_x86_64 = vector_table();
const ThinTable kernels_thin_x86_64 = thin_tables();
const PanelKernels kernels_panel_x86_64 = panel_table<2, 1>();

}  // namespace lockstep::cpu
