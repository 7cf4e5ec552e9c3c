#pragma once

namespace lockstep::optim {

/// Layer-wise adaptive moments for large batches (You et al. 2020), in the form of timm and of
/// NVIDIA's FusedLAMB. At step t, from 1:
///   m = momentum * m + (1 - momentum) * g,  v = beta2 * v + (1 - beta2) * g * g
///   u = (m / (1 - momentum^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * w
///   w -= lr * trust * u
/// A slice's trust ratio is |w| / |u|, with the norms of the whole slice; 1 if one of them is 0,
/// and for slices that are not adaptive. Weight decay is not in g. Steps that an overflow skipped
/// are not counted in t.
struct Lamb {
  float momentum = 0.9f;  ///< beta1 of the paper
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
};

}  // namespace lockstep::optim
