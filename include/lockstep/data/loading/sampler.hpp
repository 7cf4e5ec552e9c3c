#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/data/batch.hpp"

namespace lockstep::data {

/// The order in which an epoch visits the rows. Each order is a pure function of seed, epoch and
/// position, so a run can resume in the middle of an epoch.
enum class Shuffle {
  none,    ///< the order of the data set
  global,  ///< a new permutation of all rows each epoch, the same for any number of replicas
  /// Blocks of consecutive rows in permuted order, a new order each epoch. Each replica takes one
  /// part of it and permutes the rows of `window` blocks among themselves, so that it reads large
  /// pieces (a shuffle buffer). Depends on the number of replicas.
  block,
  /// Each node keeps the same rows in all epochs: blocks that the seed chose for it. Each epoch
  /// permutes them again among the node's replicas. Depends on their number and on their nodes.
  node
};

/// How often the classes come in an epoch, where that is not as often as they have rows.
struct ClassBalance {
  std::vector<std::size_t> places;  ///< [classes + 1]: class c has places [c] to [c + 1]
  std::vector<std::size_t> begin;   ///< [classes + 1]: and of `rows` those from [c] to [c + 1]
  std::vector<std::uint64_t> rows;  ///< all, class after class
  std::uint64_t most_visits = 1;    ///< of one row in an epoch
  std::size_t places_of(std::size_t label) const { return places[label + 1] - places[label]; }
  std::size_t rows_of(std::size_t label) const { return begin[label + 1] - begin[label]; }
};

/// A class of n of the rows gets a share of the epoch's places that is proportional to
/// n^(1 - evenness), up to rounding: evenness 0: as many as it has rows; 1: all classes that have
/// rows get equally many. The same on every machine. `labels`: of all rows, below `classes`.
std::shared_ptr<const ClassBalance> balance_classes(std::span<const std::int32_t> labels,
                                                    std::size_t classes, float evenness);

/// Decides which replica reads which row when: a pure function of the fields below. Each global
/// batch is a run of consecutive positions of the epoch's order; each replica takes a part of it.
/// Batch b covers positions [b * global, (b + 1) * global). Without a balance each row comes at
/// most once in an epoch; with one, the rows of a class come equally often in a whole epoch, or
/// once more. The rows that no batch covers differ from epoch to epoch (with Shuffle::node, within
/// the same node).
struct SamplerSpec {
  std::size_t rows = 0;
  std::size_t global_batch = 1;
  int replica = 0, replicas = 1;
  /// As many consecutive replicas' rows, from `replica` on, are this process's (shards of a batch).
  int taken = 1;
  std::uint64_t seed = 1;
  Shuffle shuffle = Shuffle::global;
  bool keep_last = false;  ///< the last uneven global batch is kept; else dropped
  /// Of the last one each replica takes as many rows as of a full one, until none is left.
  bool whole_blocks = false;
  std::size_t block = 1;    ///< block, node: rows of a block; the data set's last may have fewer
  std::size_t window = 16;  ///< block: blocks that are mixed
  std::vector<int> nodes = {};  ///< node: of each replica, 0 or more; empty: all on one
  std::shared_ptr<const ClassBalance> balance = {};  ///< global, of the same rows; null: none
};

/// A row that an epoch visits. What is drawn for it at random follows from `visit` in place of the
/// epoch: with a balance a row may come several times in one.
struct RowVisit {
  std::size_t row = 0;
  std::uint64_t visit = 0;  ///< another one each time that the row comes; else the epoch
};

/// A replica's rows of one global batch.
struct BatchPart {
  std::size_t first_position = 0;  ///< in the epoch's order
  std::size_t rows = 0;            ///< this replica's; may be 0 in an uneven last batch
  std::size_t global_rows = 0;     ///< of all replicas together
};

class Sampler {
 public:
  /// Throws InputError when there are no rows, when a global batch has fewer rows than replicas,
  /// when it is larger than the data set and would be dropped, or when more replicas than rows
  /// share a shuffle. (Without a shuffle, as in evaluation, some replicas may have no rows.)
  explicit Sampler(const SamplerSpec& spec);
  std::size_t batches() const;        ///< per epoch
  std::size_t dropped() const;        ///< rows of each epoch that no batch covers
  std::size_t replica_batch() const;  ///< rows of a full batch that one process takes, at most
  /// This replica's part of batch `index`. Each batch is split as evenly as possible; the lower
  /// replicas take one row more.
  BatchPart part(std::size_t index) const;
  /// Rows of each replica that is taken, in batch `index`.
  std::vector<std::size_t> taken_rows(std::size_t index) const;
  /// The row at `position` of `epoch`, where a batch covers it: O(1), with a balance O(log
  /// classes).
  RowVisit visit(std::uint64_t epoch, std::size_t position) const;
  std::size_t row(std::uint64_t epoch, std::size_t position) const {
    return visit(epoch, position).row;
  }
  /// The rows that this replica's node may read in any epoch: all rows, except with Shuffle::node.
  std::vector<RowRange> rows_of_node() const;
  const SamplerSpec& spec() const { return spec_; }

 private:
  struct BatchPosition {
    std::size_t batch = 0, replica = 0, index = 0;
  };
  std::size_t covered() const { return spec_.rows - dropped(); }
  std::size_t share(std::size_t rows, std::size_t replica) const;
  std::size_t full_rows(std::size_t replica) const;  ///< of the replica in a full batch
  std::size_t last_rows(std::size_t replica) const;  ///< of the replica in an uneven last batch
  BatchPosition place(std::size_t position) const;
  std::size_t row_of_block_order(std::uint64_t epoch, std::uint64_t stream, std::size_t at) const;
  RowVisit balanced_visit(std::uint64_t epoch, std::size_t position) const;
  std::size_t row_in_blocks(std::uint64_t epoch, std::size_t position) const;
  std::size_t row_on_node(std::uint64_t epoch, std::size_t position) const;
  std::size_t part_begin(std::size_t node) const;

  SamplerSpec spec_;
  std::size_t batches_ = 0;
  std::vector<std::size_t> replica_begin_;  ///< rows of an epoch that lower replicas read
  struct Member {
    std::size_t full_before = 0;  ///< rows of the node's lower replicas in a full batch
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
