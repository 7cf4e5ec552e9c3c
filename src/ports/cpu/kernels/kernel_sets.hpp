#pragma once

#include <vector>

#include "ports/cpu/kernels/kernels.hpp"

// What kernels.cpp chooses from. Each kind of processor has its own source of these functions.
namespace lockstep::cpu {

/// The tables of one file that compiles kernels.inc: the same source under other target options.
struct KernelSet {
  const char* name;
  const Kernels& fp32;
  const FloatKernels& floats;
  const VectorKernels& vectors;
  const ThinTable& thin;
  const PanelKernels& panels;
};

/// All that this processor can run, the fastest first; the last one is for any processor.
const std::vector<KernelSet>& kernel_sets();
extern const KernelSet plain_set;

/// Kernels for bf16. Throws InputError on a processor that has none.
const Kernels& bf16_kernels();

}  // namespace lockstep::cpu
