#pragma once

namespace lockstep::optim {

/// Stochastic gradient descent with momentum, in PyTorch's form: v = momentum * v + g and
/// w -= lr * v or, with Nesterov, w -= lr * (g + momentum * v), where g includes weight decay.
struct Sgd {
  float momentum = 0.9f;
  bool nesterov = false;
};

/// One weight's step, with a slice's factors.
struct SgdRule {
  float lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  float outer = 1;  ///< LARS: multiplies the velocity in the weight's step
};
/// Sutskever et al. 2013 in PyTorch's form: v = momentum * v + (g + decay * w); w -= lr * v, or,
/// with Nesterov, w -= lr * (g + decay * w + momentum * v).
constexpr void sgd(const SgdRule& rule, float gradient, float& weight, float& velocity) {
  const float g = gradient + rule.weight_decay * weight;
  velocity = rule.momentum * velocity + g;
  weight -= rule.lr * (rule.nesterov ? g + rule.momentum * velocity : velocity);
}

}  // namespace lockstep::optim
