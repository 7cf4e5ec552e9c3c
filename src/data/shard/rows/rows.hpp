#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/bytes/file_bytes.hpp"
#include "lockstep/data/storage.hpp"

namespace lockstep::data {

/// The rows of one file of a data set. The way in which the file stores them decides the class:
/// ContiguousRows, JpegRows or ChunkedRows.
///
/// **Thread safety:** all const methods; mapping and copying through file() come before them.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual std::array<std::size_t, 2> size(std::size_t row) const = 0;  ///< height, width
  virtual std::size_t bytes(std::size_t row) const = 0;                ///< that read() returns
  /// The row's pixels, or its JPEG file, checked with its label by their CRC-32C where the file has
  /// one. Throws BadRow, or InputError, naming the file and the row.
  virtual void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const = 0;
  /// The same without a copy; empty where that is impossible: then read() them.
  virtual std::span<const std::uint8_t> in_place(std::size_t, std::int32_t) const { return {}; }
  /// See DataSet::prepare().
  virtual bool prepare(std::size_t row) const = 0;
  /// Describes how the rows lie in the file, unless another file is slower to read.
  virtual void describe(Storage& storage) const = 0;

  /// The bytes that can be mapped and copied; null: the rows do not lie in one piece.
  virtual FileBytes* file() { return nullptr; }
  /// Where a row is in file(), as stored.
  virtual ByteRange range(std::size_t) const { return {}; }
};

}  // namespace lockstep::data
