#pragma once

// Why two hops. No collective promises an order of its sum, so rank o adds chunk o of a bucket: it
// gets what the others have of it, adds all in the tree's order and gives the sum to all. Where
// each rank's shards are one node of the tree, as many bytes travel as in an all-reduce. The sum of
// two numbers has no order: there an all-reduce is used.

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/reduce/tree.hpp"
#include "reduce/hops.hpp"

namespace lockstep::reduce {

/// The exact sum of all shards' gradients, in the same bits whatever ranks have the shards. Each
/// micro-batch is one shard; the gradients of all but the last are kept, in a few copies.
class ShardExchange final : public HopExchange {
 public:
  ShardExchange(ExchangeSpec spec, const ExchangeParts& parts);
  std::string name() const override { return choice_name(ExchangeKind::exact); }
  bool adds_shards() const override { return true; }
  void begin() override;
  void keep() override;

 private:
  /// Numbers of a bucket that one rank adds.
  struct Chunk {
    std::size_t first = 0, count = 0;
  };
  void send(std::size_t bucket) override;
  bool has_second_hop() const override { return of_nodes_.size() > 2; }
  void send_again(std::size_t bucket) override;
  void take(std::size_t) override {}
  Chunk chunk(std::size_t bucket, std::size_t rank) const;
  /// A sum that this rank has made of its shards: the last one is in the gradients.
  backend::Vector own(std::size_t node, std::size_t bucket, const Chunk& chunk) const;
  backend::Vector came(std::size_t node, std::size_t bucket, const Chunk& chunk) const;
  backend::Vector kept(std::size_t copy, std::size_t offset, std::size_t count) const;
  void for_others(const std::function<void(std::size_t to, std::size_t from)>& work) const;

  std::vector<std::size_t> of_leaves_;   ///< this rank's shards: sums that follow each
  std::vector<std::size_t> of_nodes_;    ///< the sums that all ranks have, in order: the same
  std::vector<std::size_t> node_begin_;  ///< by rank: the first of its sums; and the end
  std::vector<backend::DeviceMemory> copies_;
  std::vector<backend::DeviceMemory> came_;  ///< of buckets in flight, in turn
  std::size_t largest_chunk_ = 0;
  std::size_t leaf_ = 0, depth_ = 0;  ///< in this step: shards that are done, copies in use
};

/// Bytes of such an exchange on any of the ranks; `most`: numbers of the largest bucket.
std::size_t shard_bytes(std::size_t numbers, std::size_t most, std::size_t shards,
                        std::size_t world);

}  // namespace lockstep::reduce
