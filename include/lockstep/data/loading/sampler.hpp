#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/data/row_range.hpp"

namespace lockstep::data {

/// The order in which an epoch visits the rows. Each order is a pure function of seed, epoch and
/// position, so a run can resume in the middle of an epoch.
enum class Shuffle {
  none,    ///< the order of the data set
  global,  ///< a new permutation of all rows each epoch, the same for any number of ranks
  /// Blocks of consecutive rows in permuted order, a new order each epoch. Each rank takes one part
  /// of it and permutes the rows of `window` blocks among themselves, so that it reads large pieces
  /// (a shuffle buffer). Depends on the number of ranks.
  block,
  /// Each node keeps the same rows in all epochs: blocks that the seed chose for it. Each epoch
  /// permutes them again among the node's ranks. Depends on the number of ranks and on their nodes.
  node
};

/// Decides which rank reads which row when: a pure function of the fields below. Each global batch
/// is a run of consecutive positions of the epoch's order; each rank takes a part of it. Batch b
/// covers positions [b * global, (b + 1) * global). Each row comes at most once in an epoch. The
/// rows that no batch covers differ from epoch to epoch (with Shuffle::node, within the same node).
struct SamplerSpec {
  std::size_t rows = 0;
  std::size_t global_batch = 1;
  int rank = 0, world = 1;
  std::uint64_t seed = 1;
  Shuffle shuffle = Shuffle::global;
  bool keep_last = false;   ///< the last uneven global batch is kept; else dropped
  std::size_t block = 1;    ///< block, node: rows of a block; the data set's last may have fewer
  std::size_t window = 16;  ///< block: blocks that are mixed
  std::vector<int> nodes = {};  ///< node: of each rank, numbered from 0; empty: all on one
};

/// A rank's rows of one global batch.
struct BatchPart {
  std::size_t first_position = 0;  ///< in the epoch's order
  std::size_t rows = 0;            ///< this rank's; may be 0 in an uneven last batch
  std::size_t global_rows = 0;     ///< of all ranks together
};

class Sampler {
 public:
  /// Throws InputError when there are no rows, when a global batch has fewer rows than ranks, when
  /// it is larger than the data set and would be dropped, or when more ranks than rows share a
  /// shuffle. (Without a shuffle, as in evaluation, some ranks may have no rows.)
  explicit Sampler(const SamplerSpec& spec);
  std::size_t batches() const;     ///< per epoch
  std::size_t dropped() const;     ///< rows of each epoch that no batch covers
  std::size_t rank_batch() const;  ///< rows of a full batch on a rank, at most
  /// This rank's part of batch `index`. Each batch is split as evenly as possible; the lower ranks
  /// take one row more.
  BatchPart part(std::size_t index) const;
  /// The row at `position` of `epoch`, where a batch covers it: O(1).
  std::size_t row(std::uint64_t epoch, std::size_t position) const;
  /// The rows that this rank's node may read in any epoch: all rows, except with Shuffle::node.
  std::vector<RowRange> rows_of_node() const;
  const SamplerSpec& spec() const { return spec_; }

 private:
  struct BatchPosition {
    std::size_t batch = 0, rank = 0, index = 0;
  };
  std::size_t covered() const { return spec_.rows - dropped(); }
  std::size_t share(std::size_t rows, std::size_t rank) const;
  std::size_t full_rows(std::size_t rank) const;  ///< of the rank in a full batch
  std::size_t last_rows(std::size_t rank) const;  ///< of the rank in an uneven last batch
  BatchPosition place(std::size_t position) const;
  std::size_t row_of_block_order(std::uint64_t epoch, std::uint64_t stream, std::size_t at) const;
  std::size_t row_in_blocks(std::uint64_t epoch, std::size_t position) const;
  std::size_t row_on_node(std::uint64_t epoch, std::size_t position) const;
  std::size_t part_begin(std::size_t node) const;

  SamplerSpec spec_;
  std::size_t batches_ = 0;
  std::vector<std::size_t> rank_begin_;  ///< rows of an epoch that lower ranks read
  struct Member {
    std::size_t full_before = 0;  ///< rows of the node's lower ranks in a full batch
    std::size_t last_before = 0;  ///< and in an uneven last one
  };
  std::vector<Member> members_;
  std::vector<std::size_t> node_batch_, node_begin_;
};

}  // namespace lockstep::data

/// Training always shuffles.
template <>
struct lockstep::Choices<lockstep::data::Shuffle> {
  using enum data::Shuffle;
  static constexpr Choice<data::Shuffle> all[] = {
      {global, "global"}, {block, "block"}, {node, "node"}};
};
