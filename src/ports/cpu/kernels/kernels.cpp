#include "ports/cpu/kernels/kernels.hpp"

#include <dnnl.h>

#include "lockstep/base/error.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"
#include "ports/cpu/kernels/winograd/winograd.hpp"

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

const Kernels& kernels(Storage storage) {
  if (storage == Storage::bf16) {
    require(has_bf16(),
            "precision bf16 needs a processor with AVX512-BF16 or AMX; this one has neither, or "
            "ONEDNN_MAX_CPU_ISA hides it: use --precision fp32");
    return kernels_bf16_avx512;
  }
  return has_avx512() ? kernels_fp32_avx512 : has_avx2() ? kernels_fp32_avx2 : kernels_fp32_x86_64;
}

const FloatKernels& float_kernels() {
  return has_avx512() ? kernels_float_avx512
         : has_avx2() ? kernels_float_avx2
                      : kernels_float_x86_64;
}

const VectorKernels& vector_kernels() {
  return has_avx512() ? kernels_vector_avx512
         : has_avx2() ? kernels_vector_avx2
                      : kernels_vector_x86_64;
}

const ThinKernels& thin_kernels(std::size_t width) {
  const ThinTable& table = has_avx512() ? kernels_thin_avx512
                           : has_avx2() ? kernels_thin_avx2
                                        : kernels_thin_x86_64;
  return table.of_width[width - 1];
}

const PanelKernels& panel_kernels() {
  return has_avx512() ? kernels_panel_avx512
         : has_avx2() ? kernels_panel_avx2
                      : kernels_panel_x86_64;
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

const char* instruction_set() { return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "x86-64"; }

}  // namespace lockstep::cpu
