#pragma once

namespace lockstep {

/// Identifies this program's sources, compiler and flags by a hash of 16 hexadecimal digits. Two
/// builds with the same id compute the same bits on one machine. The Makefile writes its source.
const char* build_id();

}  // namespace lockstep
