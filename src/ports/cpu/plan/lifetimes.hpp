#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/lifetimes.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/plan/lowering.hpp"

namespace lockstep::cpu {

/// The alignment of all buffers, in bytes: a cache line.
constexpr std::size_t buffer_alignment = 64;

/// A buffer for the whole batch, and what its life follows from.
struct BufferRequest {
  enum class Kind {
    value,     ///< made by `unit` in forward; read by its readers, and by its own backward
    forward,   ///< used while regions `first` to `last` run forward
    backward,  ///< from the backward of region `first` to that of region `last`
    weights,   ///< while the weight gradients of region `first` are made
    late       ///< from the backward of region `first` to its weight gradients
  };
  Kind kind = Kind::value;
  std::size_t bytes = 0;
  std::size_t unit = 0;
  std::size_t first = 0, last = 0;
};

using backend::Life;
using backend::Lives;

/// The units at the network's cut points whose values can be kept, in order.
std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units);

/// Which buffer is in use when. The parts of forward are regions.
class Lifetimes final : public backend::Lifetimes {
 public:
  /// `units` and `requests` must outlive it; what requests say may change between choices.
  Lifetimes(const nn::Network& network, const std::vector<Unit>& units,
            const std::vector<BufferRequest>& requests, const backend::ProgramSpec& spec);
  /// True for values that have a place in memory; the others are made again where they are read.
  bool kept(std::size_t unit) const { return units_[unit].kept || ends_span(unit); }
  /// The cut through which a region that is made again gets its input, if it has one.
  std::optional<std::size_t> cut_in(std::size_t region) const;
  bool made_again(std::size_t unit) const override;

 private:
  std::size_t span_of(std::size_t unit) const override;
  std::vector<bool> needed_again(std::size_t begin, std::size_t end) const override;
  std::vector<backend::PlannedBuffer> requested() const override;
  std::size_t last_read(std::size_t unit) const;
  Lives value_lives(std::size_t unit) const;
  std::optional<Lives> lives(const BufferRequest& request) const;

  const std::vector<Unit>& units_;
  const std::vector<BufferRequest>& requests_;
};

struct Context;
struct ValuePlace;

/// The places of all units' values in evaluation; a unit that is in place has that of its skip.
/// Reserves the memory in `context`, whose regions are known.
std::vector<ValuePlace> place_values(Context& context);

}  // namespace lockstep::cpu
