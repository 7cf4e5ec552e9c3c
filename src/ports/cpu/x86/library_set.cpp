#include "ports/cpu/library_set.hpp"

#include <dnnl.h>

#include <onednn_calls.hpp>

namespace lockstep::cpu {

const char* library_instruction_set() {
  const dnnl_cpu_isa_t set = dnnl_get_effective_cpu_isa();
  if (const char* newer = onednn::newer_instruction_set(set)) return newer;
  switch (set) {
    case dnnl_cpu_isa_avx512_core_amx:
      return "amx";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512-bf16";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512-vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2-vnni";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    default:
      return "another";
  }
}

}  // namespace lockstep::cpu
