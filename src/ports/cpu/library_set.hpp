#pragma once

namespace lockstep::cpu {

/// The instruction set that oneDNN uses, which ONEDNN_MAX_CPU_ISA may limit. Another set gives
/// other bits.
const char* library_instruction_set();

}  // namespace lockstep::cpu
