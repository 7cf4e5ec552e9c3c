#include "lockstep/backend/arithmetic.hpp"
#include "ports/cpu/kernels/x86/x86_kernels.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/kernel_set.inc"

const PanelKernels panels = panel_table<8, 2>();

}  // namespace

const KernelSet avx512_set = {"avx512", fp32, floats, vectors, thin, panels};

}  // namespace lockstep::cpu
