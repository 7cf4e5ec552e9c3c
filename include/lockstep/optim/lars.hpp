#pragma once

namespace lockstep::optim {

/// Layer-wise adaptive rate scaling for large batches (You, Gitman, Ginsburg 2017), as MLPerf's
/// reference does it: v = momentum * v + lr * trust * g and w -= v or, with Nesterov,
/// w -= momentum * v + lr * trust * g, where g includes weight decay. A slice's trust ratio is
/// coefficient * |w| / (|g| + decay * |w| + epsilon), with the norms of the whole slice and g
/// without decay; 1 if one of the norms is 0, and for slices that are not adaptive.
struct Lars {
  float momentum = 0.9f;
  bool nesterov = false;
  float coefficient = 0.001f;
  float epsilon = 0;
};

}  // namespace lockstep::optim
