#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/backend/lifetimes.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cuda/lowering.hpp"

namespace lockstep::cuda {

/// The alignment of all buffers in a program's block, in bytes: what cudaMalloc gives and cuDNN
/// prefers.
constexpr std::size_t block_alignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + block_alignment - 1) / block_alignment * block_alignment;
}

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

/// The units at the network's cut points whose values can be kept, in order. `applied`: by unit,
/// the batch norms whose readers read what is before them.
std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units,
                                   const std::vector<bool>& applied);

/// Which buffer is in use when. The parts of forward are units.
class Lifetimes final : public backend::Lifetimes {
 public:
  /// `units` and `requests` must outlive it. `applied`: as for cut_units().
  Lifetimes(const nn::Network& network, const std::vector<Unit>& units,
            const std::vector<BufferRequest>& requests, const std::vector<bool>& applied,
            bool training);
  /// True for units that backward runs forward again: those of a span that is made again whose
  /// values, or what else they make, backward reads or another such unit does. The unit that ends
  /// the span is kept.
  bool made_again(std::size_t unit) const override { return again_at(unit) > 0; }

 private:
  std::size_t span_of(std::size_t unit) const override { return span_with(unit, unit); }
  std::vector<bool> needed_again(std::size_t begin, std::size_t end) const override;
  std::vector<backend::PlannedBuffer> requested() const override;
  backend::Lives lives(const BufferRequest& request) const;

  const std::vector<Unit>& units_;
  const std::vector<BufferRequest>& requests_;
};

}  // namespace lockstep::cuda
