#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/text/words.hpp"
#include "lockstep/model/model.hpp"

namespace lockstep::model {

/// Throws InputError naming the file unless the parts of its description fit each other.
void judge(const Description& about, const std::filesystem::path& path);

/// "[64, 3, 7, 7]"
inline std::string shape_text(const std::vector<std::size_t>& shape) {
  return fmt::format("[{}]", join(shape, ", "));
}

}  // namespace lockstep::model
