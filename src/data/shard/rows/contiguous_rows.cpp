#include "data/shard/rows/contiguous_rows.hpp"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::data {

ContiguousRows::ContiguousRows(std::unique_ptr<FileBytes> file, const PixelForm& form,
                               RowChecksums checksums)
    : file_(std::move(file)), form_(form), checksums_(std::move(checksums)) {}

ByteRange ContiguousRows::range(std::size_t row) const {
  const std::uint64_t bytes = form_.stored_bytes();
  return {row * bytes, (row + 1) * bytes};
}

void ContiguousRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  if (form_.plain())
    file_->read(row, range(row).begin, to);
  else
    read_converted(row, to.data());
  checksums_.check(row, label, to, file_.get());
}

void ContiguousRows::read_converted(std::size_t row, std::uint8_t* pixels) const {
  thread_local std::vector<std::uint8_t> numbers;
  numbers.resize(form_.stored_bytes());
  file_->read(row, range(row).begin, numbers);
  if (const auto bad = form_.convert(numbers.data(), pixels))
    throw InputError(fmt::format("{}: {}", file_->path().string(), not_a_pixel(form_, row, *bad)));
}

std::span<const std::uint8_t> ContiguousRows::in_place(std::size_t row, std::int32_t label) const {
  if (!form_.plain()) return {};
  const std::uint8_t* pixels = file_->mapped(row, range(row).begin, form_.count());
  if (pixels == nullptr) return {};
  checksums_.check(row, label, {pixels, form_.count()}, file_.get());
  file_->require_read(row);
  return {pixels, form_.count()};
}

bool ContiguousRows::prepare(std::size_t row) const {
  file_->ask_for(range(row).begin, form_.stored_bytes());
  return false;
}

void ContiguousRows::describe(Storage& storage) const {
  storage.converted = storage.converted || (!form_.is_bytes() && !is_float(form_.number));
}

}  // namespace lockstep::data
