#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::optim {

/// MomentUm Orthogonalised by Newton-Schulz, for filters, in the form of Jordan's airbench94_muon
/// (github.com/KellerJordan/cifar10-airbench, 2024). Of a filter w, read as a matrix of K rows, one
/// for each output, and C * R * S columns:
///   v = momentum * v + g,  u = v or, with Nesterov, g + momentum * v
///   x = u / (|u| + 1e-7), then `iterations` times x = (a + b * x x' + c * (x x')^2) x with a, b, c
///   = 3.4445, -4.7750, 2.0315: about the nearest matrix whose singular values are all 1
///   w = sqrt(K) / |w| * w - lr * x
/// Norms are Frobenius'. A filter whose norm is 0 is not scaled, and without a gradient x is 0.
/// Weight decay would mean nothing to a norm that is set, so filters have none. What is not a
/// filter (batch norm's numbers, biases, the last layer), and the first convolution, which
/// airbench94_muon does not train and Jordan's Muon leaves to another rule, learns by Sgd with
/// `rest_momentum`. airbench94_muon takes 3 iterations, Jordan's Muon 5.
struct Muon {
  float momentum = 0.6f;
  float rest_momentum = 0.9f;
  bool nesterov = true;
  int iterations = 5;
};

/// Floats that one filter's step needs in addition to it: twice itself, and four squares of the
/// shorter side, with sides rounded up to 16.
constexpr std::size_t muon_room(std::size_t rows, std::size_t columns) {
  const std::size_t shorter = (std::min(rows, columns) + 15) / 16 * 16;
  return 2 * shorter * ((std::max(rows, columns) + 15) / 16 * 16) + 4 * shorter * shorter;
}
/// Filters are updated together as long as they need no more floats than this.
constexpr std::size_t muon_together = std::size_t{1} << 24;

/// A filter's step: updates the velocity and returns the direction.
constexpr float muon_direction(float momentum, bool nesterov, float gradient, float& velocity) {
  velocity = momentum * velocity + gradient;
  return nesterov ? gradient + momentum * velocity : velocity;
}
/// By which the direction is multiplied before the first iteration.
constexpr float muon_begin(double direction_norm) {
  return static_cast<float>(1 / (direction_norm + 1e-7));
}
/// By which the weights are multiplied.
constexpr float muon_keep(std::size_t outputs, double weight_norm) {
  return weight_norm > 0 ? static_cast<float>(std::sqrt(static_cast<double>(outputs)) / weight_norm)
                         : 1;
}
/// The polynomial of an iteration.
struct Quintic {
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
};
/// Iterations are done on x x' alone, some at a time, and their product then multiplies x. More of
/// them together would lose the smaller singular values, which each one enlarges up to 3.4 times.
constexpr int muon_at_once(int iterations_left, bool first) {
  return std::min(iterations_left, first ? 2 : 3);
}

}  // namespace lockstep::optim
