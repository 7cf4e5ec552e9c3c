#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Where the rows' data is in a shard, in bytes from its beginning.
struct Places {
  std::uint64_t images = 0;  ///< pixels, or JPEGs
  std::uint64_t labels = 0, crcs = 0;
  std::uint64_t offsets = 0, sizes = 0;  ///< with JPEGs
  std::uint64_t names = 0;               ///< of files, where there are names
  std::uint64_t end = 0;                 ///< the file's length
};

struct ShardLayout {
  const DataSetInfo& info;
  std::size_t rows = 0;
  std::size_t name_bytes = 0;    ///< for each row's file name; 0: no names
  std::uint64_t jpeg_bytes = 0;  ///< of all rows, with Encoding::jpeg
};

/// Writes a shard without its rows to `file`. HDF5 lays it out and closes it before the first row
/// arrives. The rows are written without HDF5, because HDF5 can neither close a file on a full disk
/// nor let the program end cleanly after that. The place where
/// JPEGs begin does not depend on `jpeg_bytes` if it is least_jpeg_bytes or more. Errors name
/// `path`.
Places write_skeleton(const std::filesystem::path& file, const std::filesystem::path& path,
                      const ShardLayout& layout);

inline constexpr std::uint64_t least_jpeg_bytes = 1 << 16;

}  // namespace lockstep::data
