#include "lockstep/train/micro_batches.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::train {
namespace {

/// Part `index` when `rows` are split into `parts`, the first ones taking one more.
std::size_t part(std::size_t rows, std::size_t parts, std::size_t index) {
  return rows / parts + (index < rows % parts ? 1 : 0);
}

std::size_t ceiling(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<MicroBatch> plan_micro_batches(std::size_t global_rows, int world, int rank,
                                           std::size_t full_rows) {
  check(global_rows > 0 && full_rows > 0, "a step needs rows");
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t fewest = global_rows / ranks, most = ceiling(global_rows, ranks);
  const std::size_t count = std::max<std::size_t>(1, std::min(ceiling(most, full_rows), fewest));
  const std::size_t mine = part(global_rows, ranks, static_cast<std::size_t>(rank));
  const std::size_t with_one_more = global_rows % ranks;
  std::vector<MicroBatch> batches(count);
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rows = part(mine, count, i);
    const std::size_t all = with_one_more * part(fewest + 1, count, i) +
                            (ranks - with_one_more) * part(fewest, count, i);
    batches[i] = {first, rows, all};
    first += rows;
  }
  return batches;
}

}  // namespace lockstep::train
