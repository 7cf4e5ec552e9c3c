#pragma once

#include <cmath>

#include "lockstep/data/data_set_info.hpp"

/// The loss of one output of a row, where each output is judged alone: a label that applies or does
/// not, or a number. constexpr, for host and device code alike; that of classes is in
/// cross_entropy.hpp.
namespace lockstep::backend::arithmetic {

struct OutputLoss {
  double loss = 0, gradient = 0;  ///< gradient: d loss / d output
};

/// log(1 + exp(x)), which does not overflow.
constexpr double softplus(double x) {
  return (x > 0 ? x : 0) + std::log1p(std::exp(x > 0 ? -x : x));
}

/// 1 / (1 + exp(-x)), which does not overflow.
constexpr double sigmoid(double x) {
  const double e = std::exp(x > 0 ? -x : x);
  return (x > 0 ? 1 : e) / (1 + e);
}

/// Binary cross entropy of a logit against a share from 0 to 1, which smoothing moves towards 1/2.
/// positive: what the loss of the share is multiplied by, and that of the rest is not.
constexpr OutputLoss label_loss(double logit, double share, double smoothing, double positive = 1) {
  const double on = share * (1 - smoothing) + smoothing / 2;
  return {positive * on * softplus(-logit) + (1 - on) * softplus(logit),
          (1 + (positive - 1) * on) * sigmoid(logit) - positive * on};
}

/// delta 0: the squared difference. Else Huber's loss (1964): half of it up to delta, and from
/// there on linear.
constexpr OutputLoss value_loss(double value, double wanted, double delta) {
  const double error = value - wanted;
  if (!(delta > 0)) return {error * error, 2 * error};
  if (error > delta) return {delta * (error - delta / 2), delta};
  if (error < -delta) return {delta * (-error - delta / 2), -delta};
  return {error * error / 2, error};
}

/// What is asked of each output of a row: see LossSpec.
struct OutputRule {
  data::Task task = data::Task::labels;
  double smoothing = 0, delta = 0;
};

/// What one output adds to its row's loss and to Metrics::sums.
struct CountedOutput {
  double loss = 0, gradient = 0;
  double sums[3] = {};
};

/// 0 for an output of which nothing is known: `wanted` is NaN. positive: see label_loss().
constexpr CountedOutput judge_output(const OutputRule& rule, double output, double wanted,
                                     double positive = 1) {
  if (wanted != wanted) return {};
  if (rule.task == data::Task::values) {
    const OutputLoss of = value_loss(output, wanted, rule.delta);
    return {of.loss, of.gradient, {1, (output - wanted) * (output - wanted), 0}};
  }
  const OutputLoss of = label_loss(output, wanted, rule.smoothing, positive);
  const bool said = output > 0, applies = wanted > 0.5;
  return {of.loss,
          of.gradient,
          {said && applies ? 1. : 0, said && !applies ? 1. : 0, !said && applies ? 1. : 0}};
}

}  // namespace lockstep::backend::arithmetic
