#pragma once

#include <string>
#include <vector>

namespace lockstep::tcp {

/// This machine's numeric addresses at which other machines may find it.
std::vector<std::string> own_addresses();

}  // namespace lockstep::tcp
