#include "ports/cpu/units/loss.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/backend/arithmetic.hpp"

namespace lockstep::cpu {

namespace {

// How many classes rank above the label.
std::size_t rank_of_label(const float* logits, std::size_t classes, std::int32_t label) {
  std::size_t better = 0;
  for (std::size_t k = 0; k < classes; ++k)
    better += backend::arithmetic::outranks(static_cast<std::int32_t>(k), logits[k], label,
                                            logits[label]);
  return better;
}

}  // namespace

void cross_entropy(const float* logits, std::size_t classes, const data::Target& target,
                   float smoothing, float scale, backend::Metrics& metrics, float* gradient) {
  if (target.label_a < 0) {
    if (gradient) std::fill_n(gradient, classes, 0.f);
    return;
  }
  double highest = logits[0], sum = 0, all = 0;
  for (std::size_t k = 0; k < classes; ++k) highest = std::max<double>(highest, logits[k]);
  for (std::size_t k = 0; k < classes; ++k) {
    sum += std::exp(logits[k] - highest);
    all += logits[k];
  }
  const double log_sum = highest + std::log(sum);
  const backend::arithmetic::Wanted wanted =
      backend::arithmetic::wanted(target.label_a, target.label_b, target.mix, smoothing, classes);
  metrics.loss +=
      backend::arithmetic::cross_entropy(wanted, log_sum, logits[wanted.a], logits[wanted.b], all);
  metrics.rows += 1;
  const std::size_t better = rank_of_label(logits, classes, wanted.a);
  metrics.top1 += better < 1;
  metrics.top5 += better < 5;
  if (!gradient) return;
  for (std::size_t k = 0; k < classes; ++k)
    gradient[k] = backend::arithmetic::logit_gradient(wanted, static_cast<std::int32_t>(k),
                                                      logits[k], log_sum, scale);
}

}  // namespace lockstep::cpu
