#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/backend/recompute.hpp"

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
/// Tape steps [first, last] in which a buffer is in use. The tape's steps are counted: forward,
/// then backward with the steps that make values again.
struct Life {
  std::size_t first = 0, last = 0;
};
/// In forward; and after it, for what is made again.
struct Lives {
  Life life;
  std::optional<Life> again;
};

/// A buffer, for one choice of what is made again.
struct PlannedBuffer {
  std::size_t bytes = 0;
  std::optional<Lives> lives;  ///< nothing: it needs no place
  std::size_t unit = 0;        ///< which makes it
  bool in_slot = false;        ///< a micro-batch in flight keeps it
  bool is_late = false;        ///< a micro-batch without its weight gradients keeps it
};

/// Micro-batches in flight, and those of them that have run backward.
struct Flying {
  std::size_t slots = 1, later = 0;
};

/// The places of all buffers in one block. With several slots, what a micro-batch keeps from
/// forward to backward has a place in each slot, after what all share; and what it keeps from there
/// to its weight gradients has one of the places after those. Pure.
class Placement {
 public:
  Placement(const std::vector<PlannedBuffer>& buffers, const Flying& flying, std::size_t alignment);
  /// Bytes from the block's start, by slot, for forward and for what comes after it, and by buffer;
  /// any number for a buffer that has no place.
  using Offsets = std::vector<std::array<std::vector<std::size_t>, 2>>;
  Offsets offsets() const;
  /// The same for what is late, by micro-batch of those that may wait for their weight gradients.
  std::vector<std::vector<std::size_t>> late_offsets() const;
  std::size_t total() const {
    return shared_.total() + flying_.slots * slot_.total() + flying_.later * late_.total();
  }
  std::size_t without_reuse() const {
    return shared_.without_reuse() + flying_.slots * slot_.without_reuse() +
           flying_.later * late_.without_reuse();
  }

 private:
  enum class Where { shared, slot, late };
  struct BufferPlace {
    Where where = Where::shared;
    std::size_t buffer = 0;
  };
  MemoryPlanner& planner(Where where);
  Flying flying_;
  MemoryPlanner shared_, slot_, late_;
  std::vector<BufferPlace> places_[2];  // by buffer
};

/// What a program's memory has to keep to, in bytes.
struct MemoryBounds {
  std::size_t fixed = 0;      ///< parameters and workspace, whatever is made again
  std::size_t available = 0;  ///< of the block that other programs already have; 0: there is none
};

class Lifetimes;

/// Chooses what is made again, as `spec.recompute` says, and places all buffers. Leaves that choice
/// in `lifetimes`. Throws InputError when the limit is too small, naming the smallest possible one,
/// or when the network (`name`) has fewer segments than asked for.
Placement choose_placement(const ProgramSpec& spec, const std::string& name, Lifetimes& lifetimes,
                           const MemoryBounds& bounds);

}  // namespace lockstep::backend
