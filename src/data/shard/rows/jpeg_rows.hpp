#pragma once

#include <memory>
#include <vector>

#include "data/shard/rows/row_checksums.hpp"
#include "data/shard/rows/rows.hpp"

namespace lockstep::data {

/// JPEG files, one after the other in one piece.
class JpegRows final : public Rows {
 public:
  /// `ends`: [rows + 1], row r is bytes [ends[r], ends[r + 1]); `sizes`: [rows, 2], height and
  /// width.
  JpegRows(std::unique_ptr<FileBytes> file, std::vector<std::uint64_t> ends,
           std::vector<std::uint16_t> sizes, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t row) const override;
  std::size_t bytes(std::size_t row) const override { return ends_[row + 1] - ends_[row]; }
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage&) const override {}
  FileBytes* file() override { return file_.get(); }
  ByteRange range(std::size_t row) const override { return {ends_[row], ends_[row + 1]}; }

 private:
  std::unique_ptr<FileBytes> file_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::uint16_t> sizes_;
  RowChecksums checksums_;
};

}  // namespace lockstep::data
