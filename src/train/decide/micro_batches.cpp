#include "lockstep/train/decide/micro_batches.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/reduce/tree.hpp"

namespace lockstep::train {
namespace {

std::size_t ceiling(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<MicroBatch> plan_micro_batches(std::size_t global_rows, int replicas, int replica,
                                           std::size_t full_rows) {
  check(global_rows > 0 && full_rows > 0, "a step needs rows");
  const auto sharers = static_cast<std::size_t>(replicas);
  const std::size_t fewest = global_rows / sharers, most = ceiling(global_rows, sharers);
  const std::size_t count = std::max<std::size_t>(1, std::min(ceiling(most, full_rows), fewest));
  const std::size_t mine = even_share(global_rows, sharers, static_cast<std::size_t>(replica));
  const std::size_t with_one_more = global_rows % sharers;
  std::vector<MicroBatch> batches(count);
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rows = even_share(mine, count, i);
    const std::size_t all = with_one_more * even_share(fewest + 1, count, i) +
                            (sharers - with_one_more) * even_share(fewest, count, i);
    batches[i] = {first, rows, all};
    first += rows;
  }
  return batches;
}

std::vector<MicroBatch> plan_own(std::size_t global_rows, std::size_t shards, std::size_t full_rows,
                                 const comm::GridAxis& replica) {
  if (shards == 0) return plan_micro_batches(global_rows, replica.count, replica.index, full_rows);
  const reduce::ShardRange own = reduce::shards_of(shards, static_cast<std::size_t>(replica.count),
                                                   static_cast<std::size_t>(replica.index));
  const std::size_t begin = even_begin(global_rows, shards, own.first);
  std::vector<MicroBatch> batches;
  for (std::size_t s = own.first; s < own.last; ++s)
    batches.push_back({even_begin(global_rows, shards, s) - begin,
                       even_share(global_rows, shards, s), global_rows});
  return batches;
}

std::size_t own_rows(std::size_t global_rows, std::size_t shards, const comm::GridAxis& replica) {
  const std::vector<MicroBatch> all = plan_own(global_rows, shards, global_rows, replica);
  return all.back().first + all.back().rows;
}

}  // namespace lockstep::train
