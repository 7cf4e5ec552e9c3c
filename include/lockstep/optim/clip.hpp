#pragma once

namespace lockstep::optim {

/// The factor that brings gradients of this norm down to `limit`; 1 if they are not above it
/// (Pascanu et al. 2013; PyTorch's clip_grad_norm_ and its 1e-6). A norm that is not a number gives
/// 1: the gradients then are not either, and stay so.
constexpr float clip_factor(double norm, float limit) {
  const double factor = static_cast<double>(limit) / (norm + 1e-6);
  return factor < 1 ? static_cast<float>(factor) : 1;
}

}  // namespace lockstep::optim
