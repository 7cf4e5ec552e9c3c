#pragma once

// Batches of several sizes, in which a row has the same bits whatever its place and its neighbours.
// How a batch is cut decides the order of sums, so a program for 1 row may round differently than
// one for 16, and where threads have different numbers of rows, one place differently than another.
// Which sizes agree is found by running them: one image at all places, and several in turns.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"

namespace lockstep::infer {

/// Programs of one network, for several numbers of rows, that give each row the same bits. It takes
/// batches of any number of rows.
class Ladder final : public Classifier {
 public:
  /// The references must outlive it. `program.batch`: the largest number of rows; the others are
  /// its halves.
  Ladder(backend::Backend& backend, const nn::Network& network, const backend::ProgramSpec& program,
         backend::Parameters& parameters);
  /// Compiles a size, or runs a batch that compares it: a piece of the preparation, between which
  /// other networks may compute. True once nothing is left. Throws Error where no size agrees.
  bool prepare();
  /// The numbers of rows that agree, from the smallest. REQUIRES: prepare() said true. The largest
  /// is below program.batch where rows of such a batch differ by their place.
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  std::size_t largest() const { return sizes_.back(); }

  /// Cuts the rows into sizes that take the least time, as the preparation has measured them.
  void run(const data::Batch& batch) override;
  backend::Metrics take_metrics() override;
  std::span<const float> logits(std::size_t row) override;

 private:
  /// One batch of a size: an image at all places, or all in turns from this one on.
  struct Trial {
    std::size_t size, image;
    bool turns;
  };
  bool passes(const Trial& trial);
  void plan_cuts();
  /// Runs `rows` rows at `images`, of which `readable` may be read, by the program of a size.
  void compute(const std::uint8_t* images, std::size_t rows, std::size_t readable,
               std::size_t size);

  const std::size_t row_bytes_, classes_;
  Inference inference_;
  device::PinnedBuffer padded_;                    ///< for rows that do not fill their size
  std::vector<std::vector<std::uint8_t>> images_;  ///< of the trials
  std::vector<std::vector<float>> expected_;       ///< the logits of each, once they are known
  std::deque<Trial> trials_;
  std::vector<std::size_t> sizes_;
  std::map<std::size_t, double> seconds_;  ///< that a batch of each size takes
  std::vector<std::size_t> next_size_;     ///< [largest + 1]: the size to run when N rows are left
  std::vector<float> logits_;              ///< [rows, classes]
  backend::Metrics metrics_;
};

}  // namespace lockstep::infer
