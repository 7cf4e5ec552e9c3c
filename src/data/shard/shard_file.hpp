#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/chunked/block_cache.hpp"
#include "data/chunked/pixel_form.hpp"
#include "data/external/wanted_rows.hpp"
#include "data/shard/rows.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

inline constexpr const char* shard_format = "lockstep-shard";
/// The second holds what the first cannot: other elements than uint8, names of channels, no data,
/// other tasks than classes.
inline constexpr int shard_version = 2, wide_shard_version = 3;
inline constexpr const char* jpeg_shard_format = "lockstep-jpeg-shard";
inline constexpr int jpeg_shard_version = 1;
inline constexpr const char* channels_item = "channels";  ///< of names
inline constexpr const char* no_data_item = "no_data";
inline constexpr const char* targets_item = "targets";  ///< where the task is not classes
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
  WantedRows wanted;                 ///< [rows], where info.task is not classes
  std::unique_ptr<Rows> rows;
  std::uint32_t rows_hash = 0;      ///< of the checksums of all rows; 0 of another program's file
  std::size_t one_hot_classes = 0;  ///< of another program's one-hot labels; else 0
  /// Of another program's labels that are texts: each once, a label is its place; else empty.
  std::vector<std::string> label_texts;
  std::optional<Levels> levels;  ///< of another program's file
  bool only_levels = false;      ///< of floats that become uint8: that the file shows to be levels
  std::string sets;              ///< its data sets: "images /x [9, 8, 8, 3], labels /y [9]"
  std::string scaling;           ///< "; scale_factor 0.1, ..."; empty where there is none
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

/// The names that a file gives its channels; empty: it gives none. Throws InputError where they are
/// not one for each. The caller holds a Session.
std::vector<std::string> read_channel_names(hid_t file, const std::filesystem::path& path,
                                            std::size_t channels);

/// True when a data set is plain bytes in one piece of this very file, and where. The caller holds
/// a Session.
bool lies_in_one_piece(h5::Id images, std::uint64_t& offset);

/// Reads everything but the pixels; `cache` keeps blocks of these. Throws InputError naming the
/// file and what is wrong with it.
ShardFile open_shard(const std::filesystem::path& path, BlockCache& cache);

/// "of the 2 shards that their names count, 1 is here: ..."; empty when none is missing.
std::string say_missing_parts(std::span<const std::filesystem::path> files);

/// Checks that all files agree on normalisation, shape, class names and the names of their data
/// sets. Throws InputError naming both files and what differs.
void check_agreement(const ShardFile& first, const ShardFile& other);

/// A file that is there twice, under two names, would count twice. Throws InputError naming both.
void require_new(const ShardFile& file, std::span<const ShardFile> before);

/// Where the labels of other programs' files are texts, makes them places in `info.classes`. These
/// are the names that the files list, else those of the training set (spec.like), else all texts in
/// the order of their bytes. Returns whether it sorted them so. `labels`: of all rows, in the order
/// of the files. Throws InputError naming file and row.
bool number_texts(std::span<const ShardFile> files, const ExternalSpec& spec, DataSetInfo& info,
                  std::span<std::int32_t> labels);

/// Rows of numbers, to be looked at: `block_rows` at a time.
struct FloatRows {
  const std::filesystem::path& path;
  const PixelForm& form;
  std::size_t rows = 0, block_rows = 1;
  /// The numbers of the block that holds this row, as stored.
  std::function<void(std::size_t row, std::vector<std::uint8_t>& numbers)> read;
};

struct JudgedLevels {
  Levels levels;
  std::string doubt;  ///< what rounding loses, where that is worth a warning
};

/// Whether some rows (as many as below) hold 256 levels already: whole numbers from 0 to 255, or
/// floats that are such levels of 0 to 1 or 0 to 255, but for rounding, and not all the same. The
/// range of these levels; none: they are other numbers.
std::optional<Levels> find_levels(const FloatRows& rows);

/// Chooses the range that becomes 256 levels (0 to 1 or 0 to 255), unless it is `given`, by up to
/// 128 rows (or their chunks), spread over the file; large rows are fewer, at least 8. Throws
/// InputError naming the file: where the numbers are in no such range, are not finite, or would
/// change by more than 3 % of a channel's deviation (root mean square) when they are rounded. More
/// than 1 % is doubtful, and so is one level that takes most of a channel's numbers, which differ.
JudgedLevels judge_levels(const FloatRows& rows, const std::optional<Levels>& given);

/// Opens an HDF5 file that is not a shard: finds its images and labels, and what they become.
/// Its classes are those that a data set `classes` names, or not known yet. Mean and deviation are
/// not known yet. Labels are 0 or above, or places in `label_texts`. `first`: the data set's first
/// file, which decides about element and levels; null: take those of the spec, or judge by some of
/// the file's rows. Throws InputError naming the file, what was looked for and what there is.
ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec,
                        const ShardFile* first, BlockCache& cache);

}  // namespace lockstep::data
