#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/bad_row.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/external.hpp"
#include "lockstep/data/row_range.hpp"
#include "lockstep/data/staging.hpp"
#include "lockstep/data/storage.hpp"

namespace lockstep::data {

/// All files of one data set, opened and checked: every one is HDF5, whole, of one shape and one
/// list of classes, with every label in range; shards are of a known format version. Throws
/// InputError naming the file and what is wrong.
class DataSet {
 public:
  /// `path`: one file; a directory of which all *.h5 are read; or a pattern (*, ?, [...]) of files.
  /// Several files are read in order of name.
  explicit DataSet(const std::filesystem::path& path, const ExternalSpec& external = {});
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
