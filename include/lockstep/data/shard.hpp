#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep::data {

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

/// All shards of one data set, opened and checked: every file is HDF5, of a known format version,
/// whole, of one shape and one list of classes, with every label in range. Throws InputError naming
/// the file and what is wrong.
class DataSet {
 public:
  /// `path`: one shard, or a directory of which all *.h5 in order of name are read.
  explicit DataSet(const std::filesystem::path& path);
  ~DataSet();
  DataSet(DataSet&&) noexcept;
  const DataSetInfo& info() const;
  std::span<const std::int32_t> labels() const;  ///< [rows]
  std::vector<std::filesystem::path> files() const;
  std::size_t readers() const;  ///< threads that may call read() at once: any number for contiguous
                                ///< data, 1 for chunked
  std::uint64_t row_bytes(std::size_t row) const;  ///< as stored

  /// Reads row `row` into `image` [row_bytes()] and checks it and its label by their CRC-32C (until
  /// then a label is only known to be in range). Thread-safe up to readers(). Throws InputError
  /// naming the file and the row in it.
  void read(std::size_t row, std::span<std::uint8_t> image) const;

  /// With Encoding::jpeg: height and width of the row's image.
  std::array<std::size_t, 2> size(std::size_t row) const;
  /// With Encoding::jpeg: the same for a row's JPEG file, in memory of `buffer`, which grows to the
  /// largest row's size.
  std::span<const std::uint8_t> read_jpeg(std::size_t row, std::vector<std::uint8_t>& buffer) const;
  /// Throws InputError: "<file>: row <row in it> <what>".
  [[noreturn]] void refuse_row(std::size_t row, std::string_view what) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
