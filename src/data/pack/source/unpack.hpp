#pragma once

#include <filesystem>

namespace lockstep::data {

enum class Compression { none, gzip, zstd };

/// By its first bytes. Throws InputError naming the file when it cannot be read, or is compressed
/// in a way that is not known here.
Compression compression_of(const std::filesystem::path& path);

/// Writes what the file unpacks to, to `to`, which appears when all of it is there. Throws
/// InputError naming the file, and how far it got, when it is damaged or cut off.
void unpack(const std::filesystem::path& path, Compression how, const std::filesystem::path& to);

}  // namespace lockstep::data
