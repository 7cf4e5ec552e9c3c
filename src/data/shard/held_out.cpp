#include "lockstep/data/shard/held_out.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/rng.hpp"

namespace lockstep::data {

std::vector<bool> held_out_rows(std::span<const std::int32_t> labels, double share,
                                std::uint64_t seed) {
  std::vector<std::pair<std::uint64_t, std::size_t>> drawn;
  std::vector<std::size_t> left;  // of each class, still to be held out
  for (std::size_t row = 0; row < labels.size(); ++row) {
    drawn.emplace_back(draw(seed, 0, row, Draw::split), row);
    const auto label = static_cast<std::size_t>(labels[row]);
    if (label >= left.size()) left.resize(label + 1);
    ++left[label];
  }
  std::sort(drawn.begin(), drawn.end());
  for (std::size_t& count : left)
    if (count > 0)
      count = std::min(count - 1,
                       static_cast<std::size_t>(std::llround(static_cast<double>(count) * share)));
  std::vector<bool> held(labels.size());
  for (const auto& [key, row] : drawn) {
    std::size_t& wanted = left[static_cast<std::size_t>(labels[row])];
    held[row] = wanted > 0;
    if (wanted > 0) --wanted;
  }
  return held;
}

}  // namespace lockstep::data
