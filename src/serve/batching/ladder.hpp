#pragma once

// Batches of several sizes, in which a row has the same bits whatever its place and its neighbours.
// How a batch is cut decides the order of sums, so a program for 1 row may round differently than
// one for 16, and where threads have different numbers of rows, one place differently than another.
// Which sizes agree is found by running them: one image at all places, and two images in turns.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lockstep/backend/inference.hpp"

namespace lockstep::serve {

/// Programs of one network, for several numbers of rows, that give each row the same bits.
/// **Thread safety:** none; the thread that computes uses it.
class Ladder {
 public:
  /// The references must outlive it. `program.batch`: the largest number of rows; the others are
  /// its halves.
  Ladder(backend::Backend& backend, const nn::Network& network, const backend::ProgramSpec& program,
         backend::Parameters& parameters);
  /// Compiles a size, or runs a batch that compares it: a piece of the preparation, between which
  /// other networks may compute. True once nothing is left.
  bool prepare();
  /// The numbers of rows that agree, from the smallest. REQUIRES: prepare() said true. The largest
  /// is below program.batch where rows of such a batch differ by their place.
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  std::size_t largest() const { return sizes_.back(); }
  /// Copies row `row` of the next batch, [height, width, channels], to its place.
  void put(std::size_t row, std::span<const std::uint8_t> pixels);
  /// Computes the first `rows` of the batch, by the smallest size that holds them, and returns that
  /// size.
  std::size_t run(std::size_t rows);
  /// [classes] of a row, until the next run().
  std::span<const float> logits(std::size_t row) { return inference_.logits(row); }

 private:
  /// One batch of a size: image `pattern` at all places or, by the last pattern, all in turns.
  struct Trial {
    std::size_t size, pattern;
  };
  bool passes(const Trial& trial);
  void compute(std::size_t size, std::size_t rows);

  std::size_t row_bytes_;
  backend::Inference inference_;
  device::PinnedBuffer rows_;
  std::vector<std::vector<std::uint8_t>> images_;  ///< of the trials
  std::vector<std::vector<float>> expected_;       ///< the logits of each, once they are known
  std::deque<Trial> trials_;
  std::vector<std::size_t> sizes_;
};

}  // namespace lockstep::serve
