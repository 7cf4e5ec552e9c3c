#include "lockstep/base/processor.hpp"

#include <xmmintrin.h>

namespace lockstep {

const char* least_instruction_set() { return "x86-64"; }

void pause_spinning() { __builtin_ia32_pause(); }

DenormalsAreZero::DenormalsAreZero() : before_(_mm_getcsr()) {
  constexpr unsigned denormals_are_zero = 0x0040, flush_to_zero = 0x8000;
  _mm_setcsr(static_cast<unsigned>(before_) | denormals_are_zero | flush_to_zero);
}

DenormalsAreZero::~DenormalsAreZero() { _mm_setcsr(static_cast<unsigned>(before_)); }

}  // namespace lockstep
