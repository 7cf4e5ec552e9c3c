#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/data/shard.hpp"
#include "shard_hdf5.hpp"

namespace lockstep::data {

inline constexpr const char* kShardFormat = "lockstep-shard";
inline constexpr int kShardVersion = 2;
inline constexpr const char* kJpegShardFormat = "lockstep-jpeg-shard";
inline constexpr int kJpegShardVersion = 1;

/// CRC-32C of a row's pixels or JPEG and behind them its label, as a little-endian 32-bit integer.
std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label);

/// One shard, opened and checked (data/README.md lists what is checked). Contiguous bytes are read
/// from `descriptor` at `offset` by any thread, and JPEGs are always contiguous; others stay with
/// HDF5, in `images` of `file`, which are used and closed under a Session.
struct ShardFile {
  std::filesystem::path path;
  DataSetInfo info;
  std::vector<std::int32_t> labels;  ///< [rows]
  std::vector<std::uint32_t> crcs;   ///< [rows]
  std::vector<std::uint64_t> ends;  ///< [rows + 1] with jpeg: row r is bytes [ends[r], ends[r + 1])
  std::vector<std::uint16_t> sizes;  ///< [rows, 2] with jpeg: height, width
  Owned<int, ::close, -1> descriptor;
  std::uint64_t offset = 0;
  h5::File file;
  h5::Data images;

  bool contiguous() const { return static_cast<bool>(descriptor); }
};

/// Reads everything but the pixels. Throws InputError naming the file and what is wrong with it.
ShardFile open_shard(const std::filesystem::path& path);

}  // namespace lockstep::data
