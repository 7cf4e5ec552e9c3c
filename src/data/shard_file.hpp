#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/file_stamp.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "read_bytes.hpp"
#include "shard_hdf5.hpp"
#include "stored_images.hpp"

namespace lockstep::data {

inline constexpr const char* kShardFormat = "lockstep-shard";
inline constexpr int kShardVersion = 2;
inline constexpr const char* kJpegShardFormat = "lockstep-jpeg-shard";
inline constexpr int kJpegShardVersion = 1;
/// Of one file: memory is taken for each before a chunked one shows that they are there.
inline constexpr std::uint64_t kMostRows = std::uint64_t{1} << 31;

/// CRC-32C of a row's pixels or JPEG and behind them its label, as a little-endian 32-bit integer.
std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label);

struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// One shard, opened and checked (data/README.md lists what is checked), or another program's file.
/// Contiguous bytes are read from `descriptor` at `offset` by any thread, and JPEGs are always
/// contiguous; others stay with HDF5, in `stored` of `file`, which are closed under a Session.
struct ShardFile {
  std::filesystem::path path;
  DataSetInfo info;
  std::vector<std::int32_t> labels;  ///< [rows]
  std::vector<std::uint32_t> crcs;   ///< [rows]; none in other programs' files
  std::vector<std::uint64_t> ends;  ///< [rows + 1] with jpeg: row r is bytes [ends[r], ends[r + 1])
  std::vector<std::uint16_t> sizes;  ///< [rows, 2] with jpeg: height, width
  Owned<int, ::close, -1> descriptor;
  std::uint64_t offset = 0;
  FileStamp stamp;                     ///< as it was when it was opened
  std::unique_ptr<StagedFile> staged;  ///< the copy that is read in place of it
  std::unique_ptr<Mapping> mapping;    ///< of the copy, else of the file
  std::optional<PixelForm> form;  ///< of rows that are no pixels yet, contiguous or in `stored`
  h5::File file;
  std::unique_ptr<StoredImages> stored;

  /// Where a row's bytes are, behind `offset`. Contiguous files only.
  ByteRange range(std::size_t row) const;
  bool contiguous() const { return static_cast<bool>(descriptor); }
  bool external() const { return crcs.empty(); }
};

/// A file that says that it is a shard, opened under no Session.
bool looks_like_shard(const std::filesystem::path& path);

/// Opens an HDF5 file for reading. Throws InputError naming it. The caller holds a Session.
h5::File open_hdf5(const std::filesystem::path& path);

/// True when a data set is plain bytes in one piece of this very file; says where. The caller holds
/// a Session.
bool lies_in_one_piece(hid_t images, std::uint64_t& offset);

/// Opens shard.path to read `bytes` at shard.offset past HDF5. Throws InputError when they are not
/// there.
void open_descriptor(ShardFile& shard, std::uint64_t bytes);

/// Reads everything but the pixels. Throws InputError naming the file and what is wrong with it.
ShardFile open_shard(const std::filesystem::path& path);

}  // namespace lockstep::data
