#include "ports/cpu/library_set.hpp"

namespace lockstep::cpu {

const char* library_instruction_set() { return "another"; }

}  // namespace lockstep::cpu
