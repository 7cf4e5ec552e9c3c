#pragma once

#include <filesystem>
#include <string>

namespace lockstep::app {

/// The secret in a file's first line. Throws InputError naming the file when others than its owner
/// may read it or may write to it, when it is not this user's, or holds fewer than 16 letters.
std::string read_token(const std::filesystem::path& path);

}  // namespace lockstep::app
