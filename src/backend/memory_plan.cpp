#include "lockstep/backend/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

std::size_t MemoryPlanner::add(std::size_t bytes, std::size_t first, std::size_t last) {
  check(first <= last, "a buffer must be written before it is read");
  buffers_.push_back({.bytes = (bytes + alignment_ - 1) / alignment_ * alignment_,
                      .first = first,
                      .last = last,
                      .offset = 0});
  sum_ += buffers_.back().bytes;
  return buffers_.size() - 1;
}

void MemoryPlanner::place() {
  std::vector<std::size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers_[a].bytes > buffers_[b].bytes;
  });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    Buffer& buffer = buffers_[i];
    std::size_t at = 0;
    for (const std::size_t other : placed) {
      const Buffer& o = buffers_[other];
      if (o.last < buffer.first || buffer.last < o.first) continue;  // never alive at the same time
      if (at + buffer.bytes <= o.offset) break;
      at = std::max(at, o.offset + o.bytes);
    }
    buffer.offset = at;
    total_ = std::max(total_, at + buffer.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return buffers_[a].offset < buffers_[b].offset;
                                   }),
                  i);
  }
}

}  // namespace lockstep::backend
