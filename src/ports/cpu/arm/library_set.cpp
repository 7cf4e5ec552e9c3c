#include "ports/cpu/library_set.hpp"

#include <dnnl.h>

namespace lockstep::cpu {

// oneDNN's header names x86's sets only. Those of Arm are bits: NEON, and SVE with registers of
// 128, 256, 384 and 512 bits, each with all before it.
const char* library_instruction_set() {
  switch (static_cast<unsigned>(dnnl_get_effective_cpu_isa())) {
    case 0x1:
      return "neon";
    case 0x3:
      return "sve128";
    case 0x7:
      return "sve256";
    case 0xf:
      return "sve384";
    case 0x1f:
      return "sve512";
    default:
      return "another";
  }
}

}  // namespace lockstep::cpu
