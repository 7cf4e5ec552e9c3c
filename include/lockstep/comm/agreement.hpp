#pragma once

#include <string>
#include <string_view>

#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

/// Compares a text of all ranks. Empty when they agree; else each text with its ranks, the most
/// common first: "1f2e3d4c on ranks 0-2, but 00000000 on rank 3". Collective; all ranks get the
/// same answer.
std::string disagreement(Control& control, const std::string& mine, std::string_view phase);

}  // namespace lockstep::comm
