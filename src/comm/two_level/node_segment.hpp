#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/owned.hpp"

namespace lockstep::comm {

/// Memory, zero at first, that processes of one user on one node share. It has no name: the system
/// frees it when the last of them is gone, however they end. Pages exist once they are written.
class SharedMemory {
 public:
  /// Throws InputError with the system's reason.
  static SharedMemory create(std::size_t bytes);
  /// The memory that another process created and has not hidden yet. Throws InputError with the
  /// reason: that process belongs to another container, or the system forbids it.
  static SharedMemory attach(const std::string& address, std::size_t bytes);

  /// What attach() takes; REQUIRES: this process created it.
  const std::string& address() const { return address_; }
  /// From now on no one can attach.
  void hide() { file_.reset(); }
  std::byte* data() const { return data_.get(); }  ///< aligned to a page

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };
  SharedMemory(Descriptor file, std::size_t bytes);

  Descriptor file_;
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::string address_;
};

/// What the ranks of a node do with the data of a sum, in this order.
enum class Mark : std::size_t { gave, summed, took };

/// The shared memory of a node's ranks: for each rank some slots of `slot_floats`, and how far the
/// rank is. The ranks make the same sums in the same order; sum i uses slot i % slots.
/// **Thread safety:** each process uses its part from one thread. A rank writes only to its own
/// slots and counts. A count is written after the data that it announces and read before it.
class NodeSegment {
 public:
  static constexpr std::size_t slots = 4;
  static std::size_t bytes(std::size_t ranks, std::size_t slot_floats);

  NodeSegment(SharedMemory memory, std::size_t ranks, std::size_t mine, std::size_t slot_floats)
      : memory_(std::move(memory)), ranks_(ranks), mine_(mine), slot_floats_(slot_floats) {}

  std::size_t ranks() const { return ranks_; }
  std::size_t mine() const { return mine_; }  ///< this rank's number on the node
  float* slot(std::size_t rank, std::uint64_t sum) const;

  /// This rank has done this for all sums before `sum`: it is the next one.
  bool is_next(Mark mark, std::uint64_t sum) const { return count(mine_, mark) == sum; }
  void tell(Mark mark, std::uint64_t sum) { count(mine_, mark).store(sum + 1); }
  bool all_have(Mark mark, std::uint64_t sum) const { return missing(mark, sum).empty(); }
  /// Numbers of the ranks that have not done this for `sum`.
  std::vector<std::size_t> missing(Mark mark, std::uint64_t sum) const;
  /// All ranks have taken what was in the slot before.
  bool slot_is_free(std::uint64_t sum) const {
    return sum < slots || all_have(Mark::took, sum - slots);
  }

 private:
  using Count = std::atomic<std::uint64_t>;
  static_assert(Count::is_always_lock_free, "processes share counts");
  struct alignas(64) Counts {
    std::array<Count, 3> of_mark;  ///< sums
  };
  Count& count(std::size_t rank, Mark mark) const;

  SharedMemory memory_;
  std::size_t ranks_, mine_, slot_floats_;
};

}  // namespace lockstep::comm
