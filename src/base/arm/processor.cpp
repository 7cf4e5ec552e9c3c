#include "lockstep/base/processor.hpp"

namespace lockstep {
namespace {

// The register FPCR. Its bit FZ is for what instructions take and for what they make.
constexpr std::uint64_t flush_to_zero = std::uint64_t{1} << 24;

std::uint64_t control() {
  std::uint64_t now;
  asm volatile("mrs %0, fpcr" : "=r"(now));
  return now;
}

void set_control(std::uint64_t to) { asm volatile("msr fpcr, %0" : : "r"(to)); }

}  // namespace

const char* least_instruction_set() { return "neon"; }

void pause_spinning() { asm volatile("yield"); }

DenormalsAreZero::DenormalsAreZero() : before_(control()) { set_control(before_ | flush_to_zero); }

DenormalsAreZero::~DenormalsAreZero() { set_control(before_); }

}  // namespace lockstep
