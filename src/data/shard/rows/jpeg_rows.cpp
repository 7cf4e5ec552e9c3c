#include "data/shard/rows/jpeg_rows.hpp"

#include <utility>

namespace lockstep::data {

JpegRows::JpegRows(std::unique_ptr<FileBytes> file, std::vector<std::uint64_t> ends,
                   std::vector<std::uint16_t> sizes, RowChecksums checksums)
    : file_(std::move(file)),
      ends_(std::move(ends)),
      sizes_(std::move(sizes)),
      checksums_(std::move(checksums)) {}

std::array<std::size_t, 2> JpegRows::size(std::size_t row) const {
  return {sizes_[2 * row], sizes_[2 * row + 1]};
}

void JpegRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  file_->read(row, ends_[row], to);
  checksums_.check(row, label, to, file_.get());
}

bool JpegRows::prepare(std::size_t row) const {
  file_->ask_for(ends_[row], bytes(row));
  return false;
}

}  // namespace lockstep::data
