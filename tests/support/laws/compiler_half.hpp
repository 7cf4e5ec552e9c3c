#pragma once

namespace lockstep::test::laws {

/// The compiler's own float of 16 bits, with which ours are compared. g++ 12 has no name for it on
/// Arm processors, but knows it by its mode.
typedef float Half __attribute__((mode(HF)));

}  // namespace lockstep::test::laws
