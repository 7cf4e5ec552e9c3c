#pragma once

#include <string>
#include <string_view>

#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

/// Asks all ranks whether they say the same. Empty when they do; else who says what, those that
/// most ranks say first: "1f2e3d4c on ranks 0-2, but 00000000 on rank 3". Collective; all ranks get
/// the same answer.
std::string disagreement(Control& control, const std::string& mine, std::string_view phase);

}  // namespace lockstep::comm
