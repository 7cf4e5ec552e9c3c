#pragma once

#include <filesystem>

#include "lockstep/model/model.hpp"

namespace lockstep::model {

/// Throws InputError naming the file unless the parts of its description fit each other.
void judge(const Description& about, const std::filesystem::path& path);

}  // namespace lockstep::model
