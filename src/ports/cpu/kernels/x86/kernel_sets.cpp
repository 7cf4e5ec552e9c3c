#include "ports/cpu/kernels/kernel_sets.hpp"

#include <dnnl.h>

#include "lockstep/base/error.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"
#include "ports/cpu/kernels/winograd/winograd.hpp"
#include "ports/cpu/kernels/x86/x86_kernels.hpp"

namespace lockstep::cpu {

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/// Asks oneDNN, because oneDNN obeys ONEDNN_MAX_CPU_ISA and would compute bf16 slowly if it is
/// limited.
bool has_bf16() {
  constexpr unsigned needed = dnnl_cpu_isa_avx512_core_bf16;
  return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
         (dnnl_get_effective_cpu_isa() & needed) == needed;
}

bool has_amx() {
  constexpr unsigned needed = dnnl_cpu_isa_avx512_core_amx;
  return (dnnl_get_effective_cpu_isa() & needed) == needed;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

const std::vector<KernelSet>& kernel_sets() {
  static const std::vector<KernelSet> sets = [] {
    std::vector<KernelSet> all;
    if (has_avx512()) all.push_back(avx512_set);
    if (has_avx2()) all.push_back(avx2_set);
    all.push_back(plain_set);
    return all;
  }();
  return sets;
}

const Kernels& bf16_kernels() {
  require(has_bf16(),
          "precision bf16 needs a processor with AVX512-BF16 or AMX; this one has neither, or "
          "ONEDNN_MAX_CPU_ISA hides it: use --precision fp32");
  return kernels_bf16_avx512;
}

const WinogradKernels* winograd_kernels(Storage storage, std::size_t channels) {
  // With fewer channels the products are too short for what the transforms take.
  constexpr std::size_t fewest_for_pairs = 64;
  if (storage == Storage::bf16) {
    if (!has_bf16() || has_amx()) return nullptr;
    return channels < fewest_for_pairs ? &winograd_avx512_bf16 : &winograd_pairs_avx512_bf16;
  }
  return has_avx512() ? &winograd_avx512 : nullptr;
}

TapGradient tap_gradient(Storage storage) {
  return storage == Storage::bf16 && has_bf16() && !has_amx() ? tap_gradient_avx512_bf16 : nullptr;
}

}  // namespace lockstep::cpu
