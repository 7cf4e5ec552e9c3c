#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/data/row_range.hpp"

namespace lockstep::data {

/// One row is broken: its CRC-32C, its JPEG or its size is wrong; others may be whole. A file that
/// cannot be read at all is a plain InputError.
class BadRow : public InputError {
 public:
  using InputError::InputError;
};

/// How a shard stores its images: as pixels, all of one size, or as JPEG files of any size.
enum class Encoding { raw, jpeg };

/// What all shards of a data set agree on, and what normalisation needs. data/README.md specifies
/// the file.
struct DataSetInfo {
  std::size_t rows = 0, height = 0, width = 0, channels = 0;  ///< height, width: 0 with jpeg
  Encoding encoding = Encoding::raw;
  std::vector<std::string> classes;  ///< names; a label is an index into them
  std::vector<float> mean, stddev;   ///< per channel, of value / 255, over the training rows (the
                                     ///< validation set carries the training set's)
  std::size_t row_bytes() const { return height * width * channels; }
};

/// Writes one shard: rows as info.encoding says, int32 labels, per-row CRC-32C of both. Memory does
/// not grow with the rows, but for 20 bytes each. The file appears at `path` only when finish()
/// returns; an error leaves nothing behind (InputError names the path).
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path path, const DataSetInfo& info, std::size_t rows);
  ~ShardWriter();
  void write(std::span<const std::uint8_t> image, std::int32_t label);  ///< the next row: pixels
  /// The next row: a JPEG file of an image of this size.
  void write_jpeg(std::span<const std::uint8_t> file, std::size_t height, std::size_t width,
                  std::int32_t label);
  void finish();  ///< exactly `rows` rows must have been written
 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Replaces the mean and deviation in a finished shard, for who knows them only once all shards are
/// written. Throws InputError naming the path.
void set_normalisation(const std::filesystem::path& shard, std::span<const float> mean,
                       std::span<const float> stddev);

/// How HDF5 files are read that are no shards: one data set of images, one of labels. Rows of uint8
/// [height, width, channels] are taken as they are, everything else becomes that as it is read.
struct ForeignSpec {
  std::string images, labels;   ///< names of the data sets; empty: found by shape and name
  std::string layout = "auto";  ///< auto, nhwc, nchw
  std::string range = "auto";   ///< what floats go from and to: auto, 0-1, 0-255, -1-1
  std::size_t classes = 0;      ///< 0: as many as the file names, else the largest label and one
  /// The training set of a validation set, which has its classes, mean and deviation; null: they
  /// are found, the last two from 1024 rows at most.
  const DataSetInfo* like = nullptr;
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< for decoded chunks
};

/// What stage() found.
struct Staging {
  bool fits = false;
  std::uint64_t bytes = 0;      ///< that it takes
  std::uint64_t there = 0;      ///< of them, from an earlier run or another rank
  std::uint64_t available = 0;  ///< where it goes
};

/// How a data set's images lie in their files, by the file that is slowest to read.
struct Storage {
  std::string layout;          ///< "contiguous", "chunks of 16 row(s), gzip"
  bool contiguous = true;      ///< any thread reads a row by itself, nothing is decoded first
  bool through_hdf5 = false;   ///< HDF5 decodes, one thread at a time
  bool converted = false;      ///< numbers become uint8, or planes pixels
  std::size_t block_rows = 1;  ///< decoded together
  std::size_t cache_bytes = 0;
  bool checksums = true;  ///< each row has its CRC-32C
};

/// All files of one data set, opened and checked: every one is HDF5, whole, of one shape and one
/// list of classes, with every label in range; shards are of a known format version. Throws
/// InputError naming the file and what is wrong.
class DataSet {
 public:
  /// `path`: one file; a directory of which all *.h5 are read; or a pattern (*, ?, [...]) of files.
  /// Several files are read in order of name.
  explicit DataSet(const std::filesystem::path& path, const ForeignSpec& foreign = {});
  ~DataSet();
  DataSet(DataSet&&) noexcept;
  const DataSetInfo& info() const;
  std::span<const std::int32_t> labels() const;  ///< [rows]
  std::vector<std::filesystem::path> files() const;
  Storage storage() const;
  std::uint64_t row_bytes(std::size_t row) const;  ///< as stored

  /// Reads row `row` into `image` [row_bytes()] and checks it and its label by their CRC-32C, where
  /// there is one (until then a label is only known to be in range). Thread-safe. Throws BadRow, or
  /// InputError, naming the file and the row in it.
  void read(std::size_t row, std::span<std::uint8_t> image) const;
  /// Decodes ahead of need the block that the row lies in, unless that was done or is under way;
  /// true when this call did it. Thread-safe. What is wrong with it, read() will say.
  /// Where the row lies in one piece this asks the disk for it, or has it staged, and is false.
  bool prepare(std::size_t row) const;
  /// Raw rows as read() gives them, without copying them where the file is mapped, else in memory
  /// of `buffer`, which grows to a row's size.
  std::span<const std::uint8_t> view(std::size_t row, std::vector<std::uint8_t>& buffer) const;

  /// From now on contiguous rows are read from the pages that all processes of this node share.
  /// Once, before anybody reads, and behind stage(). Throws InputError.
  void map();
  /// From now on `rows` are read from a copy in `directory` of this node, which is made by all of
  /// the node's processes together as rows are wanted and, beside that, by a thread of each; no
  /// byte is read from the original twice. Once, before anybody reads. When it does not fit
  /// nothing happens. Throws InputError when it cannot be begun, or the data is not contiguous.
  /// `promised`: bytes of the room there that another data set will fill.
  Staging stage(const std::filesystem::path& directory, std::span<const RowRange> rows,
                std::uint64_t promised = 0);
  /// Share of what stage() began that is there, 0 to 1.
  double staged() const;

  /// With Encoding::jpeg: height and width of the row's image.
  std::array<std::size_t, 2> size(std::size_t row) const;
  /// With Encoding::jpeg: the same for a row's JPEG file, in memory of `buffer`, which grows to the
  /// largest row's size.
  std::span<const std::uint8_t> read_jpeg(std::size_t row, std::vector<std::uint8_t>& buffer) const;
  /// Throws BadRow: "<file>: row <row in it>: <what>".
  [[noreturn]] void refuse_row(std::size_t row, std::string_view what) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
