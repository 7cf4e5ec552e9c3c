#include "tests/gpu/fixture.hpp"

namespace lockstep::test {

bool fused_sums_repeat() { return true; }

}  // namespace lockstep::test
