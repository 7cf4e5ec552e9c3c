#pragma once

#include <cstdint>

// What processors of different kinds do in different ways. A folder named x86 or arm has what is
// for those only; a folder generic, next to it or alone, is for all others. The Makefile chooses by
// the compiler's target.
namespace lockstep {

/// The instructions that the program needs at least: "x86-64", "neon" (64-bit Arm), or "plain". It
/// finds out itself which more it can use.
const char* least_instruction_set();

/// In a loop that waits for another thread: lets the core's other thread have its turn.
void pause_spinning();

/// While it lives, this thread takes denormals for zero, and makes none; where the processor can.
class DenormalsAreZero {
 public:
  DenormalsAreZero();
  ~DenormalsAreZero();
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  std::uint64_t before_;  ///< the register that says so
};

}  // namespace lockstep
