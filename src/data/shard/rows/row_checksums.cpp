#include "data/shard/rows/row_checksums.hpp"

#include <fmt/core.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/data/bad_row.hpp"

namespace lockstep::data {

std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label) {
  const auto bits = static_cast<std::uint32_t>(label);
  std::uint8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  return crc32c(bytes, sizeof bytes, crc32c(image.data(), image.size()));
}

RowChecksums::RowChecksums(std::filesystem::path path, std::string what,
                           std::vector<std::uint32_t> crcs)
    : path_(std::move(path)), what_(std::move(what)), crcs_(std::move(crcs)) {}

void RowChecksums::check(std::size_t row, std::int32_t label, std::span<const std::uint8_t> bytes,
                         const FileBytes* file) const {
  if (crcs_.empty()) return;
  const std::uint32_t stored = crcs_[row], crc = row_crc(bytes, label);
  if (crc == stored) return;
  const CopiedFile* copy = nullptr;
  if (file != nullptr) {
    file->require_read(row);  // missing pages are not a damaged row
    copy = file->copied();
  }
  throw BadRow(fmt::format(
      "{}: row {} is damaged: the CRC-32C of its {} and its label is {:08x}, but {:08x} is stored; "
      "restore the file or pack it again{}",
      path_.string(), row, what_, crc, stored,
      copy != nullptr ? fmt::format(" (and remove its copy {})", copy->path().string())
                      : std::string()));
}

}  // namespace lockstep::data
