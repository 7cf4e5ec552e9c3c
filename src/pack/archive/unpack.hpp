#pragma once

#include <filesystem>

namespace lockstep::pack {

enum class Compression { none, gzip, zstd, xz, bzip2 };

/// Detects the compression by the first bytes. Throws InputError naming the file when it cannot be
/// read, or is compressed in an unknown way.
Compression compression_of(const std::filesystem::path& path);

/// Unpacks the file to `to`, which appears when it is complete. Throws InputError naming the file,
/// and how far it got, when it is damaged or cut off.
void unpack(const std::filesystem::path& path, Compression how, const std::filesystem::path& to);

}  // namespace lockstep::pack
