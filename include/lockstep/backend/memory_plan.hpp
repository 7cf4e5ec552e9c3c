#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::backend {

/// Places buffers in one block of memory. Each buffer is alive for a span of the tape; buffers that
/// are alive at the same time never overlap. Pure.
class MemoryPlanner {
 public:
  MemoryPlanner() = default;
  /// alignment: the alignment of all buffers, in bytes.
  explicit MemoryPlanner(std::size_t alignment) : alignment_(alignment) {}
  /// Adds a buffer of `bytes` that is written at tape step `first` or later and last read at
  /// `last`. Returns its number.
  std::size_t add(std::size_t bytes, std::size_t first, std::size_t last);
  /// Decides all offsets (multiples of the alignment): largest buffer first, each at the lowest
  /// place that is free during its life.
  void place();
  std::size_t offset(std::size_t buffer) const { return buffers_[buffer].offset; }
  std::size_t total() const { return total_; }        ///< bytes of the block
  std::size_t without_reuse() const { return sum_; }  ///< bytes if nothing shared memory

 private:
  struct Buffer {
    std::size_t bytes, first, last, offset;
  };
  std::size_t alignment_ = 64;
  std::vector<Buffer> buffers_;
  std::size_t total_ = 0, sum_ = 0;
};

}  // namespace lockstep::backend
