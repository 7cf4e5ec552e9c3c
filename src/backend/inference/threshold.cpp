#include "lockstep/backend/inference/threshold.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::backend {
namespace {

/// The number of fewest decimals in [low, high); REQUIRES: 0 <= low < high. Where rounding leaves
/// none, it is `low`.
double shortest_between(double low, double high) {
  for (double scale = 1; scale <= 1e15; scale *= 10) {
    const double rounded = std::ceil(low * scale) / scale;
    if (rounded >= low && rounded < high) return rounded;
  }
  return low;
}

}  // namespace

FittedThreshold fit_threshold(std::vector<ThresholdRow> rows, double points) {
  for (ThresholdRow& row : rows)
    if (std::isnan(row.confidence)) row.confidence = 0;
  std::ranges::sort(rows, {}, &ThresholdRow::confidence);
  FittedThreshold fitted{.kept = rows.size()};
  for (const ThresholdRow& row : rows) {
    fitted.right += row.first_right;
    fitted.second_right += row.second_right;
  }
  const double needed = static_cast<double>(fitted.second_right) -
                        points / 100 * static_cast<double>(rows.size()) - 1e-9;
  // The threshold is at `low`: the rows up to `at` have no more confidence.
  std::size_t at = 0;
  double low = 0;
  const auto pass_rows = [&] {
    for (; at < rows.size() && rows[at].confidence <= low; ++at) {
      fitted.right += rows[at].second_right;
      fitted.right -= rows[at].first_right;
      --fitted.kept;
    }
  };
  pass_rows();
  while (at < rows.size() && static_cast<double>(fitted.right) < needed) {
    low = rows[at].confidence;
    pass_rows();
  }
  if (at < rows.size()) fitted.above = shortest_between(low, rows[at].confidence);
  return fitted;
}

}  // namespace lockstep::backend
