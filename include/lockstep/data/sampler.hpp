#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

/// Who reads which row when: a pure function of what stands here. Each global batch is a run of
/// consecutive positions of the epoch's order; a rank takes its slice of it. Batch b covers
/// positions [b * global, (b + 1) * global).
struct SamplerSpec {
  std::size_t rows = 0;
  std::size_t global_batch = 1;
  int rank = 0, world = 1;
  std::uint64_t seed = 1;
  bool shuffle = true;     ///< a new permutation each epoch; else the order of the data set
  bool keep_last = false;  ///< the last uneven global batch is kept; else dropped
};

/// A rank's rows of one global batch.
struct Slice {
  std::size_t first_position = 0;  ///< in the epoch's order
  std::size_t rows = 0;            ///< this rank's; may be 0 in an uneven last batch
  std::size_t global_rows = 0;     ///< of all ranks together
};

class Sampler {
 public:
  /// Throws InputError when there are no rows, a global batch that the ranks cannot share evenly,
  /// one larger than the data set that would be dropped, or more ranks than rows to shuffle among
  /// them (in order, as evaluation reads, some ranks may have none).
  explicit Sampler(const SamplerSpec& spec);
  std::size_t batches() const;     ///< per epoch
  std::size_t dropped() const;     ///< rows of each epoch that no batch covers
  std::size_t rank_batch() const;  ///< rows of a full batch on each rank
  /// This rank's part of batch `index`. A full batch gives every rank global / world rows; an
  /// uneven last one is split as evenly as can be, the lower ranks taking one more.
  Slice slice(std::size_t index) const;
  /// The row that stands at `position` of `epoch`: a keyed permutation (no table), O(1).
  std::size_t row(std::uint64_t epoch, std::size_t position) const;
  const SamplerSpec& spec() const { return spec_; }

 private:
  SamplerSpec spec_;
};

}  // namespace lockstep::data
