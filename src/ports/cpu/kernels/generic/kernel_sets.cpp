#include "ports/cpu/kernels/kernel_sets.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/processor.hpp"
#include "ports/cpu/kernels/generic/winograd_plain.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"

namespace lockstep::cpu {

const std::vector<KernelSet>& kernel_sets() {
  static const std::vector<KernelSet> sets = {plain_set};
  return sets;
}

const Kernels& bf16_kernels() {
  throw InputError(
      fmt::format("precision bf16 has no kernels for processors with {}: use --precision fp32",
                  least_instruction_set()));
}

const WinogradKernels* winograd_kernels(Storage storage, std::size_t) {
  return storage == Storage::fp32 ? &winograd_plain : nullptr;
}

TapGradient tap_gradient(Storage) { return nullptr; }

}  // namespace lockstep::cpu
