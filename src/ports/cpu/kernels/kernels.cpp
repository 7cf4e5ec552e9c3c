#include "ports/cpu/kernels/kernels.hpp"

#include "ports/cpu/kernels/kernel_sets.hpp"

namespace lockstep::cpu {

namespace {

const KernelSet& fastest() {
  static const KernelSet& first = kernel_sets().front();
  return first;
}

}  // namespace

const Kernels& kernels(Storage storage) {
  return storage == Storage::bf16 ? bf16_kernels() : fastest().fp32;
}

const FloatKernels& float_kernels() { return fastest().floats; }

const VectorKernels& vector_kernels() { return fastest().vectors; }

const ThinKernels& thin_kernels(std::size_t width) { return fastest().thin.of_width[width - 1]; }

const PanelKernels& panel_kernels() { return fastest().panels; }

const char* instruction_set() { return fastest().name; }

}  // namespace lockstep::cpu
