#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/text/words.hpp"

namespace lockstep::model {

/// "[64, 3, 7, 7]"
inline std::string shape_text(const std::vector<std::size_t>& shape) {
  return fmt::format("[{}]", join(shape, ", "));
}

}  // namespace lockstep::model
