#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

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
const PanelKernels panels = panel_table<8, 2>();

}  // namespace

const KernelSet avx512_set = {"avx512", fp32, floats, vectors, thin, panels};

}  // namespace lockstep::cpu
