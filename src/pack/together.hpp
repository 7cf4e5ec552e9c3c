#pragma once

#include "lockstep/comm/agreement.hpp"

namespace lockstep::pack {

inline constexpr double round_s = 0.1;  ///< between two exchanges with the other ranks

using comm::together;

}  // namespace lockstep::pack
