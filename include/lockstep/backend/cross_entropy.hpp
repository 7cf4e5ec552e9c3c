#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

/// The loss of a row: cross entropy against the labels that mixup and label smoothing ask for,
/// (1 - smoothing) * (mix at a, 1 - mix at b) + smoothing / classes. constexpr, for host and device
/// code alike.
namespace lockstep::backend::arithmetic {

/// The target distribution of one row.
struct Wanted {
  std::int32_t a, b;
  double mix, sharp, even;
  constexpr double of(std::int32_t label) const {
    return even + sharp * ((label == a ? mix : 0) + (label == b ? 1 - mix : 0));
  }
};
constexpr Wanted wanted(std::int32_t a, std::int32_t b, float mix, float smoothing,
                        std::size_t classes) {
  const double s = smoothing;
  return {a, b, mix, 1 - s, s / static_cast<double>(classes)};
}
/// log_sum: log of the sum of exp(logit). sum: the sum of all logits.
constexpr double cross_entropy(const Wanted& w, double log_sum, double logit_a, double logit_b,
                               double sum) {
  return log_sum - w.sharp * (w.mix * logit_a + (1 - w.mix) * logit_b) - w.even * sum;
}
/// d loss / d logit, times `scale`.
constexpr float logit_gradient(const Wanted& w, std::int32_t label, double logit, double log_sum,
                               double scale) {
  return static_cast<float>(scale * (std::exp(logit - log_sum) - w.of(label)));
}
/// Whether class k ranks above `label`; on equal logits the lower index does. A NaN never counts in
/// favour of the label.
constexpr bool outranks(std::int32_t k, float logit_k, std::int32_t label, float logit_label) {
  const bool label_wins = logit_label > logit_k || (logit_label == logit_k && label < k);
  return k != label && !label_wins;
}

}  // namespace lockstep::backend::arithmetic
