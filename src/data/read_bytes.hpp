#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "staged_file.hpp"

namespace lockstep::data {

struct ShardFile;

/// Pages of a file that all processes of the node share.
class Mapping {
 public:
  /// Throws InputError naming `name`.
  Mapping(int descriptor, const std::string& name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  /// Null when the file does not have them any more: to touch such pages would be fatal.
  const std::uint8_t* bytes(std::uint64_t begin, std::uint64_t end) const;

 private:
  int descriptor_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Reads bytes of a contiguous file from `offset` behind where its rows begin, from its copy if it
/// has one; they belong to row `row` of it. Thread-safe. Throws InputError naming the file and the
/// row.
void read_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                std::span<std::uint8_t> to);

/// The same bytes without copying them, where the file is mapped; null where it is not.
const std::uint8_t* mapped_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                                 std::size_t bytes);

/// Asks for the same bytes ahead of need: from the copy's original, or from the disk.
void ask_for_bytes(const ShardFile& file, std::uint64_t offset, std::size_t bytes);

}  // namespace lockstep::data
