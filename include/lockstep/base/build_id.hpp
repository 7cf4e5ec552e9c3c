#pragma once

namespace lockstep {

/// Names this program's sources, compiler and flags by a hash, as 16 hexadecimal digits: two builds
/// of one id compute the same bits on one machine. The Makefile writes its source.
const char* build_id();

}  // namespace lockstep
