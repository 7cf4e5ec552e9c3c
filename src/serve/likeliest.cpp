#include "serve/likeliest.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::serve {

std::vector<std::size_t> likeliest(std::span<const float> values, std::size_t top) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return values[a] > values[b] || (values[a] == values[b] && a < b);
                    });
  order.resize(top);
  return order;
}

std::vector<float> probabilities_of(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  std::vector<double> shares;
  for (const double one : logits) sum += shares.emplace_back(std::exp(one - highest));
  std::vector<float> probabilities;
  for (const double share : shares) probabilities.push_back(static_cast<float>(share / sum));
  return probabilities;
}

}  // namespace lockstep::serve
