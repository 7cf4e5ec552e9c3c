#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/placement.hpp"
#include "lockstep/backend/recompute.hpp"
#include "ports/cpu/lowering.hpp"

namespace lockstep::cpu {

/// A buffer for the whole batch, and what its life follows from.
struct BufferRequest {
  enum class Kind {
    value,    ///< made by `unit` in forward; read by its readers, and by its own backward
    forward,  ///< used while regions `first` to `last` run forward
    backward  ///< from the backward of region `first` to that of region `last`
  };
  Kind kind = Kind::value;
  std::size_t bytes = 0;
  std::size_t unit = 0;
  std::size_t first = 0, last = 0;
};

/// A run of regions [first, last) whose values backward keeps, or makes again. Nothing but the
/// value of one unit in region `first`, the cut, comes from the regions before.
struct Stretch {
  std::size_t first = 0, last = 0;
  bool again = false;
};

using backend::Life;
using backend::Lives;

/// Which buffer is in use when, for any choice of the spans that are made again. The tape's steps
/// are counted: forward, then backward with the steps that make values again.
class Lifetimes {
 public:
  /// The references must outlive it. `cuts`: the units at the network's cut points, in order.
  Lifetimes(const std::vector<Unit>& units, std::size_t regions, std::vector<std::size_t> cuts,
            bool training);
  std::size_t segments() const { return cuts_.size() + 1; }

  /// Decides what is made again; the rest describes that choice. At first everything is kept.
  void choose(const std::vector<backend::Span>& spans);
  /// True for values that have a place in memory; the others are made again where they are read.
  bool kept(std::size_t unit) const { return kept_[unit]; }
  /// The cut through which a region that is made again gets its input, if it has one.
  std::optional<std::size_t> cut_in(std::size_t region) const;
  /// True for units that backward runs forward again.
  bool made_again(std::size_t unit) const;
  /// Nothing for the value of a unit that is not kept.
  std::optional<Lives> lives(const BufferRequest& request) const;
  /// True when forward writes it and backward reads it.
  bool outlives_forward(const Life& life) const {
    return life.first < regions_ && life.last >= regions_;
  }
  /// A step of the tape after forward: a region's backward, or its forward again.
  struct Step {
    std::size_t region;
    bool again;
  };
  const std::vector<Step>& after_forward() const { return after_forward_; }

  /// The costs of a span, all other segments being kept. `operations`: of each unit's forward.
  backend::SpanCost cost(const backend::Span& span, const std::vector<BufferRequest>& requests,
                         const std::vector<double>& operations);
  /// The most bytes alive at a time.
  std::size_t peak(const std::vector<BufferRequest>& requests) const;

 private:
  std::size_t region_at(std::size_t segment) const;
  const Stretch& stretch_of(std::size_t unit) const;
  bool belongs_to(const Stretch& stretch, std::size_t unit) const;
  std::size_t last_read(std::size_t unit) const;
  Lives value_lives(std::size_t unit) const;
  std::vector<std::size_t> alive(const std::vector<BufferRequest>& requests) const;

  const std::vector<Unit>& units_;
  std::size_t regions_;
  std::vector<std::size_t> cuts_;
  std::vector<std::optional<std::size_t>> cut_of_region_;
  bool training_;
  std::vector<Stretch> stretches_;
  std::vector<bool> kept_;
  std::vector<Step> after_forward_;
  std::vector<std::size_t> again_, backward_;  // numbers of steps, by region; 0: none
};

}  // namespace lockstep::cpu
