#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

/// The loss of a row: cross entropy against the labels that mixup and label smoothing ask for,
/// (1 - smoothing) * (mix at a, 1 - mix at b) + smoothing / classes, in which each class's share is
/// multiplied by its weight. constexpr, for host and device code alike.
namespace lockstep::backend::arithmetic {

/// Of each class, or of each label; null: 1.
struct OutputWeights {
  const float* each = nullptr;
  constexpr double of(std::int32_t label) const {
    return each == nullptr ? 1 : static_cast<double>(each[label]);
  }
};

/// The target distribution of one row, and how much its losses weigh.
struct Wanted {
  std::int32_t a, b;
  double mix, sharp, even;
  double weight_a = 1, weight_b = 1;
  double whole = 1;  ///< the sum of what is wanted of each class, times its weight
  constexpr double of(std::int32_t label) const {
    return even + sharp * ((label == a ? mix : 0) + (label == b ? 1 - mix : 0));
  }
};
/// weight_sum: of all classes' weights.
constexpr Wanted wanted(std::int32_t a, std::int32_t b, float mix, float smoothing,
                        std::size_t classes, const OutputWeights& weights = {},
                        double weight_sum = 0) {
  const double s = smoothing;
  Wanted w{a, b, mix, 1 - s, s / static_cast<double>(classes)};
  if (weights.each == nullptr) return w;
  w.weight_a = weights.of(a);
  w.weight_b = weights.of(b);
  w.whole = w.sharp * (w.mix * w.weight_a + (1 - w.mix) * w.weight_b) + w.even * weight_sum;
  return w;
}
/// log_sum: log of the sum of exp(logit). sum: the sum of all logits, times their classes' weights.
constexpr double cross_entropy(const Wanted& w, double log_sum, double logit_a, double logit_b,
                               double sum) {
  return w.whole * log_sum -
         w.sharp * (w.mix * w.weight_a * logit_a + (1 - w.mix) * w.weight_b * logit_b) -
         w.even * sum;
}
/// d loss / d logit, times `scale`. weight: of the label.
constexpr float logit_gradient(const Wanted& w, std::int32_t label, double logit, double log_sum,
                               double scale, double weight = 1) {
  return static_cast<float>(scale * (w.whole * std::exp(logit - log_sum) - weight * w.of(label)));
}
/// Whether class k ranks above `label`; on equal logits the lower index does. A NaN never counts in
/// favour of the label.
constexpr bool outranks(std::int32_t k, float logit_k, std::int32_t label, float logit_label) {
  const bool label_wins = logit_label > logit_k || (logit_label == logit_k && label < k);
  return k != label && !label_wins;
}

}  // namespace lockstep::backend::arithmetic
