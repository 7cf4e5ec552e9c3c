#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/bytes/file_bytes.hpp"

namespace lockstep::data {

/// CRC-32C of a row's pixels or JPEG and, after them, its label as a little-endian 32-bit integer.
std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label);

/// The CRC-32C of each row of a shard; other programs' files have none.
class RowChecksums {
 public:
  RowChecksums() = default;
  /// `what` rows are: "pixels" or "JPEG".
  RowChecksums(std::filesystem::path path, std::string what, std::vector<std::uint32_t> crcs);
  /// Throws BadRow naming the file and the row, or InputError when the row could not be read.
  /// `file`: where its bytes came from; null: from blocks.
  void check(std::size_t row, std::int32_t label, std::span<const std::uint8_t> bytes,
             const FileBytes* file) const;

 private:
  std::filesystem::path path_;
  std::string what_;
  std::vector<std::uint32_t> crcs_;
};

}  // namespace lockstep::data
