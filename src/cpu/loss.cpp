#include "cpu/loss.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cpu {

namespace {

// How many classes are at least as likely as the label; on equal logits the lower index wins. A NaN
// never counts for the label.
std::size_t rank_of_label(const float* logits, std::size_t classes, std::size_t label) {
  std::size_t better = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    const bool label_wins = logits[label] > logits[k] || (logits[label] == logits[k] && label < k);
    better += k != label && !label_wins;
  }
  return better;
}

}  // namespace

void cross_entropy(const float* logits, std::size_t classes, const data::Target& target,
                   float smoothing, float scale, Metrics& metrics, float* gradient) {
  if (target.label_a < 0) {
    if (gradient) std::fill_n(gradient, classes, 0.f);
    return;
  }
  const std::size_t a = static_cast<std::size_t>(target.label_a),
                    b = static_cast<std::size_t>(target.label_b);
  double highest = logits[0], sum = 0, all = 0;
  for (std::size_t k = 0; k < classes; ++k) highest = std::max<double>(highest, logits[k]);
  for (std::size_t k = 0; k < classes; ++k) {
    sum += std::exp(logits[k] - highest);
    all += logits[k];
  }
  const double log_sum = highest + std::log(sum), n = static_cast<double>(classes);
  const double mix = target.mix, sharp = 1 - smoothing, even = smoothing / n;
  metrics.loss += log_sum - sharp * (mix * logits[a] + (1 - mix) * logits[b]) - even * all;
  metrics.rows += 1;
  const std::size_t better = rank_of_label(logits, classes, a);
  metrics.top1 += better < 1;
  metrics.top5 += better < 5;
  if (!gradient) return;
  for (std::size_t k = 0; k < classes; ++k) {
    const double wanted = even + sharp * ((k == a ? mix : 0) + (k == b ? 1 - mix : 0));
    gradient[k] = static_cast<float>(scale * (std::exp(logits[k] - log_sum) - wanted));
  }
}

}  // namespace lockstep::cpu
