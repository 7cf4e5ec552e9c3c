#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/http.hpp"

namespace lockstep::app {

/// The secret in a file's first line. Throws InputError naming the file when others than its owner
/// may read it or may write to it, when it is not this user's, or holds fewer than 16 letters.
std::string read_token(const std::filesystem::path& path);

/// A certificate, with those that signed it, and its private key, in two PEM files. Throws
/// InputError naming the file when others than its owner may use the key's, when it is not this
/// user's, or one holds no PEM; naming both when they cannot be used together.
HttpTls read_tls(const std::filesystem::path& certificate, const std::filesystem::path& key);

}  // namespace lockstep::app
