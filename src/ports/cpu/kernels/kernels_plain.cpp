#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/processor.hpp"
#include "ports/cpu/kernels/kernel_sets.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/formats.inc"
#include "ports/cpu/kernels/kernels.inc"
#include "ports/cpu/kernels/thin.inc"
#include "ports/cpu/kernels/update.inc"

#include "ports/cpu/kernels/products.inc"

const Kernels fp32 = table<float>();
const FloatKernels floats = {add, sgd, lars, lamb, direction, squares, scale, average, linear};
const VectorKernels vectors = vector_table();
const ThinTable thin = thin_tables();
const PanelKernels panels = panel_table<2, 1>();

}  // namespace

const KernelSet plain_set = {least_instruction_set(), fp32, floats, vectors, thin, panels};

}  // namespace lockstep::cpu
