#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fault_guard.hpp"
#include "staged_file.hpp"

namespace lockstep::data {

struct ShardFile;

/// Pages of a file that all processes of the node share. Those that cannot be read are zeros, and
/// failed() says so behind the reading.
class Mapping {
 public:
  /// Throws InputError naming `name`.
  Mapping(int descriptor, const std::string& name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  /// Null when the file does not have them any more.
  const std::uint8_t* bytes(std::uint64_t begin, std::uint64_t end) const;
  bool failed() const { return guard_ && guard_->failed(); }

 private:
  int descriptor_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::optional<FaultGuard> guard_;  // ends before the mapping does
};

/// Reads bytes of a contiguous file from `offset` behind where its rows begin, from its copy if it
/// has one; they belong to row `row` of it. Thread-safe. Throws InputError naming the file and the
/// row.
void read_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                std::span<std::uint8_t> to);

/// The same bytes without copying them, where the file is mapped; null where it is not. All of
/// their pages were there a moment ago; require_read() behind their use says whether they still
/// were.
const std::uint8_t* mapped_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                                 std::size_t bytes);

/// Throws InputError naming file and row when what was read cannot be trusted: pages were gone, or
/// a file without checksums has changed since it was opened. JPEGs and shards have theirs.
void require_read(const ShardFile& file, std::size_t row);

/// Asks for the same bytes ahead of need: from the copy's original, or from the disk.
void ask_for_bytes(const ShardFile& file, std::uint64_t offset, std::size_t bytes);

}  // namespace lockstep::data
