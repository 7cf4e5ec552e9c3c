#include "reduce/shard_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/share.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

namespace {

/// A bucket's first hop may begin while those of the others have not been added.
constexpr std::size_t in_flight = hops_apart + 1;

std::vector<ShardRange> leaves_of(const ShardRange& range) {
  std::vector<ShardRange> leaves;
  for (std::size_t s = range.first; s < range.last; ++s) leaves.push_back({s, s + 1});
  return leaves;
}

/// The sums that the others have, at most.
std::size_t most_of_others(std::size_t shards, std::size_t world) {
  std::size_t all = 0, fewest = shards;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::size_t own = nodes_of(shards, shards_of(shards, world, rank)).size();
    all += own;
    fewest = std::min(fewest, own);
  }
  return all - fewest;
}

std::size_t largest_share(std::size_t numbers, std::size_t world) {
  return even_share(numbers, world, 0);
}

}  // namespace

std::size_t shard_bytes(std::size_t numbers, std::size_t most, std::size_t shards,
                        std::size_t world) {
  const std::size_t copies = sizeof(float) * most_kept(shards, world) * numbers;
  const std::size_t others = most_of_others(shards, world);
  if (others < 2) return copies;
  return copies + sizeof(float) * in_flight * others * largest_share(most, world);
}

ShardExchange::ShardExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : HopExchange(spec, parts) {
  std::vector<ShardRange> all;
  for (std::size_t r = 0; r < world(); ++r) {
    node_begin_.push_back(all.size());
    const auto own = nodes_of(spec.shards, shards_of(spec.shards, world(), r));
    all.insert(all.end(), own.begin(), own.end());
  }
  node_begin_.push_back(all.size());
  of_nodes_ = additions_after(spec.shards, all);
  of_leaves_ = additions_after(spec.shards, leaves_of(shards_of(spec.shards, world(), rank())));
  const std::size_t numbers = parts.parameters.layout().size;
  for (std::size_t i = 0; i < most_kept(spec.shards, world()); ++i)
    copies_.push_back(vectors_.allocate(numbers * sizeof(float), "sums of shards"));
  for (const Bucket& bucket : buckets())
    largest_chunk_ = std::max(largest_chunk_, largest_share(bucket.size, world()));
  const std::size_t others = all.size() - (node_begin_[rank() + 1] - node_begin_[rank()]);
  for (std::size_t i = 0; i < in_flight && has_second_hop(); ++i)
    came_.push_back(vectors_.allocate(others * largest_chunk_ * sizeof(float), "others' sums"));
}

void ShardExchange::begin() {
  HopExchange::begin();
  leaf_ = depth_ = 0;
}

Vector ShardExchange::kept(std::size_t copy, std::size_t offset, std::size_t count) const {
  return backend::vector(reinterpret_cast<float*>(copies_[copy].get()) + offset, count);
}

void ShardExchange::keep() {
  check(leaf_ + 1 < of_leaves_.size(), "the last shard's gradients go to ready()");
  const std::size_t numbers = parts_.parameters.layout().size, additions = of_leaves_[leaf_++];
  const Vector now = backend::vector(parts_.parameters.device_pointer(Part::gradients), numbers);
  if (additions == 0) return vectors_.cast(now, kept(depth_++, 0, numbers));
  vectors_.add(1, now, kept(depth_ - 1, 0, numbers));
  for (std::size_t i = 1; i < additions; ++i, --depth_)
    vectors_.add(1, kept(depth_ - 1, 0, numbers), kept(depth_ - 2, 0, numbers));
}

ShardExchange::Chunk ShardExchange::chunk(std::size_t bucket, std::size_t of) const {
  const std::size_t size = buckets()[bucket].size;
  return {even_begin(size, world(), of), even_share(size, world(), of)};
}

Vector ShardExchange::own(std::size_t node, std::size_t bucket, const Chunk& part) const {
  if (node + 1 == node_begin_[rank() + 1] - node_begin_[rank()])
    return gradients(bucket, part.first, part.count);
  return kept(node, buckets()[bucket].offset + part.first, part.count);
}

/// `node`: among those of all ranks.
Vector ShardExchange::came(std::size_t node, std::size_t bucket, const Chunk& part) const {
  const std::size_t mine = node_begin_[rank() + 1] - node_begin_[rank()];
  const std::size_t place = node < node_begin_[rank()] ? node : node - mine;
  float* all = reinterpret_cast<float*>(came_[bucket % in_flight].get());
  return backend::vector(all + place * largest_chunk_, part.count);
}

void ShardExchange::for_others(
    const std::function<void(std::size_t to, std::size_t from)>& work) const {
  communicator_.together([&] {
    for (std::size_t distance = 1; distance < world(); ++distance)
      work((rank() + distance) % world(), (rank() + world() - distance) % world());
  });
}

void ShardExchange::send(std::size_t bucket) {
  check(leaf_ + 1 == of_leaves_.size(), "a shard of this rank is missing in the step");
  const std::size_t additions = of_leaves_.back(), size = buckets()[bucket].size;
  for (std::size_t i = 0; i < additions; ++i)
    vectors_.add(1, kept(depth_ - 1 - i, buckets()[bucket].offset, size),
                 gradients(bucket, 0, size));
  network().wait(*compute().record());  // what is sent precedes its sending
  if (world() == 1) return;
  const std::string name = fmt::format("bucket {}", bucket);
  if (!has_second_hop())
    return communicator_.all_reduce(gradients(bucket, 0, size).elements(), comm::Reduction::sum,
                                    name, network());
  const Chunk mine = chunk(bucket, rank());
  for_others([&](std::size_t to, std::size_t from) {
    const Chunk theirs = chunk(bucket, to);
    for (std::size_t n = 0; n < node_begin_[rank() + 1] - node_begin_[rank()]; ++n)
      communicator_.send(own(n, bucket, theirs).elements(), static_cast<int>(to), name, network());
    for (std::size_t n = node_begin_[from]; n < node_begin_[from + 1]; ++n)
      communicator_.receive(came(n, bucket, mine).elements(), static_cast<int>(from), name,
                            network());
  });
}

void ShardExchange::send_again(std::size_t bucket) {
  const Chunk mine = chunk(bucket, rank());
  std::vector<Vector> sums;
  for (std::size_t n = 0; n < of_nodes_.size() && mine.count > 0; ++n) {
    const bool here = n >= node_begin_[rank()] && n < node_begin_[rank() + 1];
    sums.push_back(here ? own(n - node_begin_[rank()], bucket, mine) : came(n, bucket, mine));
    for (std::size_t i = 0; i < of_nodes_[n]; ++i) {
      const Vector right = sums.back();
      sums.pop_back();
      vectors_.add(1, right, sums.back());
    }
  }
  const Vector all = gradients(bucket, mine.first, mine.count);
  if (mine.count > 0 && sums[0].data != all.data) vectors_.cast(sums[0], all);
  network().wait(*compute().record());  // the sum precedes its sending
  const std::string name = fmt::format("bucket {}, sums", bucket);
  for_others([&](std::size_t to, std::size_t from) {
    const Chunk theirs = chunk(bucket, from);
    communicator_.send(all.elements(), static_cast<int>(to), name, network());
    communicator_.receive(gradients(bucket, theirs.first, theirs.count).elements(),
                          static_cast<int>(from), name, network());
  });
}

}  // namespace lockstep::reduce
