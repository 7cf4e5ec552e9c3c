#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/processor.hpp"
#include "ports/cpu/kernels/kernel_sets.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/kernel_set.inc"

const PanelKernels panels = panel_table<2, 1>();

}  // namespace

const KernelSet plain_set = {least_instruction_set(), fp32, floats, vectors, thin, panels};

}  // namespace lockstep::cpu
