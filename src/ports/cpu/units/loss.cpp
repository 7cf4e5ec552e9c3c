#include "ports/cpu/units/loss.hpp"

#include <algorithm>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/logits.hpp"

namespace lockstep::cpu {

void cross_entropy(const float* logits, std::size_t classes, const data::Target& target,
                   float smoothing, float scale, backend::Metrics& metrics, float* gradient) {
  const double log_sum = backend::count_row(metrics, {logits, classes}, target, smoothing);
  if (!gradient) return;
  if (target.label_a < 0) {
    std::fill_n(gradient, classes, 0.f);
    return;
  }
  const backend::arithmetic::Wanted wanted =
      backend::arithmetic::wanted(target.label_a, target.label_b, target.mix, smoothing, classes);
  for (std::size_t k = 0; k < classes; ++k)
    gradient[k] = backend::arithmetic::logit_gradient(wanted, static_cast<std::int32_t>(k),
                                                      logits[k], log_sum, scale);
}

}  // namespace lockstep::cpu
