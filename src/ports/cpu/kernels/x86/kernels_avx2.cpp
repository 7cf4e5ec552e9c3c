#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx2,fma")
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/kernel_set.inc"

const PanelKernels panels = panel_table<4, 1>();

}  // namespace

const KernelSet avx2_set = {"avx2", fp32, floats, vectors, thin, panels};

}  // namespace lockstep::cpu
