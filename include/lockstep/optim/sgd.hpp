#pragma once

namespace lockstep::optim {

/// Stochastic gradient descent with momentum, in PyTorch's form: v = momentum * v + g and
/// w -= lr * v or, with Nesterov, w -= lr * (g + momentum * v), where g includes weight decay.
struct Sgd {
  float momentum = 0.9f;
  bool nesterov = false;
};

}  // namespace lockstep::optim
