#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/placement.hpp"
#include "ports/cuda/lowering.hpp"

namespace lockstep::cuda {

/// A buffer of a program, and what its life follows from.
struct BufferRequest {
  std::size_t bytes = 0;
  std::size_t unit = 0;          ///< whose forward makes it, or whose backward
  bool of_backward = false;      ///< its backward does
  std::size_t last_forward = 0;  ///< the last unit whose forward uses it
  /// The unit whose backward uses it last; nothing: only forward uses it.
  std::optional<std::size_t> last_backward = {};
  bool repeated = false;  ///< made again when its unit runs forward again
  bool always = false;    ///< each slot keeps it all the time: what passes a boundary
};

/// Which buffer is in use when, for any choice of the spans that are made again. Each unit is a
/// step of forward; what follows is counted after that.
class Lifetimes {
 public:
  /// `cuts`: the units at the network's cut points that have a value, in order. The references
  /// must outlive it.
  Lifetimes(const std::vector<Unit>& units, const std::vector<BufferRequest>& requests,
            std::vector<std::size_t> cuts, bool training);
  std::size_t segments() const { return cuts_.size() + 1; }

  /// Decides what is made again; the rest describes that choice. At first everything is kept.
  void choose(const std::vector<backend::Span>& spans);
  /// True for units that backward runs forward again: those of a span that is made again whose
  /// values, or what else they make, backward reads or another such unit does. The unit that ends
  /// the span is kept.
  bool made_again(std::size_t unit) const { return again_[unit] > 0; }
  backend::Lives lives(const BufferRequest& request) const;
  /// True when a micro-batch in flight keeps it.
  bool in_slot(const BufferRequest& request) const;
  /// A step of the tape after forward: a unit's backward, or its forward again.
  struct Step {
    std::size_t unit;
    bool again;
  };
  const std::vector<Step>& after_forward() const { return after_forward_; }

  /// The costs of a span, all other segments being kept. `operations`: of each unit's forward.
  backend::SpanCost cost(const backend::Span& span, const std::vector<double>& operations);
  /// The most bytes alive at a time.
  std::size_t peak() const;

 private:
  std::size_t begin_of(std::size_t segment) const;
  bool remains(const backend::Life& life) const;
  std::vector<bool> needed_again(std::size_t begin, std::size_t end) const;
  std::vector<std::size_t> alive() const;

  const std::vector<Unit>& units_;
  const std::vector<BufferRequest>& requests_;
  std::vector<std::size_t> cuts_;
  bool training_;
  std::vector<bool> ends_span_;  // by unit
  std::vector<Step> after_forward_;
  std::vector<std::size_t> again_, backward_;  // numbers of steps, by unit; 0: none
};

/// The alignment of all buffers in a program's block, in bytes: what cudaMalloc gives and cuDNN
/// prefers.
constexpr std::size_t block_alignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + block_alignment - 1) / block_alignment * block_alignment;
}

}  // namespace lockstep::cuda
