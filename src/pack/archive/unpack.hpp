#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep::pack {

enum class Compression { none, gzip, zstd, xz, bzip2 };

/// Detects the compression by the first bytes. Throws InputError naming the file when it cannot be
/// read, or is compressed in an unknown way.
Compression compression_of(const std::filesystem::path& path);

/// How much is written: up to `times` the packed file's size, or `always` where that is more, while
/// the disk keeps `spare` bytes.
struct UnpackLimits {
  std::uint64_t times = 100, always = 1'000'000'000, spare = 256'000'000;
};

/// Unpacks the file to `to`, which appears when it is complete. Throws InputError naming the file,
/// and how far it got, when it is damaged or cut off, or above a limit.
void unpack(const std::filesystem::path& path, Compression how, const std::filesystem::path& to,
            const UnpackLimits& limits = {});

}  // namespace lockstep::pack
