#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chunked/block_cache.hpp"
#include "data/shard/rows.hpp"
#include "lockstep/base/files/file_stamp.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

inline constexpr const char* shard_format = "lockstep-shard";
inline constexpr int shard_version = 2;
inline constexpr const char* jpeg_shard_format = "lockstep-jpeg-shard";
inline constexpr int jpeg_shard_version = 1;
/// The most rows of one file: memory is taken for each before a chunked file shows that they exist.
inline constexpr std::uint64_t most_rows = std::uint64_t{1} << 31;

/// The range of floats in another program's file; unused for other numbers.
struct Levels {
  double low = 0, high = 255;
};

/// One shard, opened and checked (data/README.md lists what is checked), or another program's file.
struct ShardFile {
  std::filesystem::path path;
  DataSetInfo info;
  std::vector<std::int32_t> labels;  ///< [rows]
  std::unique_ptr<Rows> rows;
  std::uint32_t rows_hash = 0;      ///< of the checksums of all rows; 0 of another program's file
  std::size_t one_hot_classes = 0;  ///< of another program's one-hot labels; else 0
  /// Of another program's labels that are texts: each once, a label is its place; else empty.
  std::vector<std::string> label_texts;
  std::optional<Levels> levels;  ///< of another program's file
  std::string sets;              ///< its data sets: "images /x [9, 8, 8, 3], labels /y [9]"
  std::array<std::string, 2> set_names;
  bool labels_elsewhere = false;  ///< in a file that is named for this one
  std::string doubt;              ///< what a user should know of its numbers; else empty
  FileStamp stamp;
  bool external() const { return levels.has_value(); }
};

/// True when a file says that it is a shard. The caller must not hold a Session.
bool looks_like_shard(const std::filesystem::path& path);

/// Opens an HDF5 file for reading. Throws InputError naming it. The caller holds a Session.
h5::File open_hdf5(const std::filesystem::path& path);

/// True when a data set is plain bytes in one piece of this very file, and where. The caller holds
/// a Session.
bool lies_in_one_piece(h5::Id images, std::uint64_t& offset);

/// Reads everything but the pixels; `cache` keeps blocks of these. Throws InputError naming the
/// file and what is wrong with it.
ShardFile open_shard(const std::filesystem::path& path, BlockCache& cache);

}  // namespace lockstep::data
