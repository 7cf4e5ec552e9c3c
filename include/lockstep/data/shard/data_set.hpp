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
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// "classes in the order of their names: 0 daisy, 1 rose, 2 tulip", with the first and the last.
std::string classes_in_order(std::span<const std::string> names);

/// The files of a data set, sorted: `path` itself, the *.h5 in a folder, or those that match a
/// pattern. Throws InputError naming `path` when there are none, or when a folder lacks one of the
/// shards that the names of others count (train-00000-of-00002.h5). A pattern may leave some out,
/// and pack did if a skipped.txt is next to the folder.
std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path);

/// All files of one data set, opened and checked. Each file is whole HDF5; all have one shape and
/// one list of classes; every label is in range; shards have a known format version, and none is
/// there twice. Throws InputError naming the file and what is wrong.
///
/// **Thread safety:** const methods may run on many threads at once. map() and copy_to() come
/// before the first read.
class DataSet {
 public:
  /// `path`: one file; a directory, whose *.h5 files are all read; or a pattern (*, ?, [...]) of
  /// files. Several files are read in order of name.
  explicit DataSet(const std::filesystem::path& path, const ExternalSpec& external = {});
  ~DataSet();
  DataSet(DataSet&&) noexcept;
  const DataSetInfo& info() const;
  std::span<const std::int32_t> labels() const;  ///< [rows]; 0 where the task is not classes
  /// What a row should say where the task is not classes: a label is 1 or 0, a value in the file's
  /// units; NaN is not known.
  float wanted(std::size_t row, std::size_t output) const;
  std::vector<std::filesystem::path> files() const;
  /// Identifies the rows: hashes of the files' names, of each row's checksum and its label. Other
  /// programs' files, whose rows have no checksums, are known by their size and time.
  std::string fingerprint() const;
  bool external() const;  ///< other programs' files, not shards
  /// What to say where the classes are texts that label the rows, in sorted order; else empty.
  std::string say_order() const;
  /// Which data sets other programs' files hold their rows in: "images /x [100, 16, 16, 3], labels
  /// /y [100]"; empty for shards.
  std::string say_sets() const;
  /// What a user should be warned of: numbers that rounding changes, shards that are left out.
  const std::vector<std::string>& doubts() const;
  /// Which values stand for no data, their share in up to 1024 rows, and how many of these rows are
  /// nothing else; empty where none does. Reads these rows.
  std::string say_share_of_no_data() const;
  Storage storage() const;
  std::uint64_t row_bytes(std::size_t row) const;  ///< as stored

  /// Reads row `row` into `image` [row_bytes()] and checks it and its label by their CRC-32C, if
  /// the file has one (before that, a label is only known to be in range). Throws BadRow, or
  /// InputError, naming the file and the row in it.
  void read(std::size_t row, std::span<std::uint8_t> image) const;
  /// Decodes ahead of need the block that holds the row, unless another call has done so or is
  /// doing so. True when this call did it. An error in the block is left to read() to report. Where
  /// the row lies in one piece, this asks the disk for it, or has it copied to the node, and
  /// returns false.
  bool prepare(std::size_t row) const;
  /// Raw rows as read() gives them, without a copy where the file is mapped; else in `buffer`,
  /// which grows to a row's size.
  std::span<const std::uint8_t> view(std::size_t row, std::vector<std::uint8_t>& buffer) const;

  /// From now on, contiguous rows are read from pages that all processes of this node share. Call
  /// it once, after copy_to() and before the first read. Throws InputError.
  void map();
  /// From now on, `rows` are read from a copy in `directory` on this node. All processes of the
  /// node make the copy together: they copy rows when these are wanted, and one thread in each
  /// process copies the rest. No byte is read from the original twice. Call it once, before the
  /// first read. Does nothing when the copy does not fit. Throws InputError when the copy cannot be
  /// started, or the data is not contiguous. `promised`: bytes of the space there that another data
  /// set will fill.
  NodeCopy copy_to(const std::filesystem::path& directory, std::span<const RowRange> rows,
                   std::uint64_t promised = 0);
  /// The copied share of what copy_to() started, 0 to 1.
  double copied() const;

  /// With Encoding::jpeg: height and width of the row's image.
  std::array<std::size_t, 2> size(std::size_t row) const;
  /// With Encoding::jpeg: like view(), for a row's JPEG file; `buffer` grows to the largest row.
  std::span<const std::uint8_t> read_jpeg(std::size_t row, std::vector<std::uint8_t>& buffer) const;
  /// The name of the file that the row was made from; empty where the shard has none. Slow: for
  /// messages.
  std::string file_name(std::size_t row) const;
  std::size_t file_name_bytes() const;  ///< the most that one has
  /// Throws BadRow: "<file>: row <row in it>: <what>".
  [[noreturn]] void refuse_row(std::size_t row, std::string_view what) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Replaces the mean and deviation in a finished shard, for a caller that learns them only after
/// all shards are written. Throws InputError naming the path.
void set_normalisation(const std::filesystem::path& shard, std::span<const float> mean,
                       std::span<const float> stddev);

}  // namespace lockstep::data
