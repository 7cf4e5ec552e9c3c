#include "lockstep/base/processor.hpp"

namespace lockstep {

const char* least_instruction_set() { return "plain"; }

void pause_spinning() {}

DenormalsAreZero::DenormalsAreZero() : before_(0) {}

DenormalsAreZero::~DenormalsAreZero() { static_cast<void>(before_); }

}  // namespace lockstep
