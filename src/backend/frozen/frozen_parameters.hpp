#pragma once

#include <memory>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::backend {

/// The state of a network whose first layers are frozen: the second part's, and the first part's
/// weights.
class FrozenParameters final : public Parameters {
 public:
  /// `network`: the whole one.
  FrozenParameters(const nn::Network& network, std::unique_ptr<Parameters> frozen,
                   std::unique_ptr<Parameters> trained);
  const nn::ArenaLayout& layout() const override { return layout_; }
  float* device_pointer(Part part) override { return trained_->device_pointer(part); }
  void weights_changed() override { trained_->weights_changed(); }
  void import_slice(Part part, std::size_t slice, std::span<const float> plain) override;
  void export_slice(Part part, std::size_t slice, std::span<float> plain) const override;
  void for_each(std::size_t count, const std::function<void(std::size_t)>& work) const override {
    trained_->for_each(count, work);
  }
  void start_average() override { trained_->start_average(); }
  bool has_average() const override { return trained_->has_average(); }
  void start_second_moments() override { trained_->start_second_moments(); }
  bool has_second_moments() const override { return trained_->has_second_moments(); }
  std::uint32_t hash() const override;
  std::optional<LossScale> loss_scale() const override { return trained_->loss_scale(); }
  void set_loss_scale(const LossScale& scale) override { trained_->set_loss_scale(scale); }
  double clipped_norm() const override { return trained_->clipped_norm(); }
  std::optional<optim::TrustRatios> trust_ratios() const override {
    return trained_->trust_ratios();
  }

  Parameters& frozen() { return *frozen_; }
  Parameters& trained() { return *trained_; }
  const Parameters& trained() const { return *trained_; }

 private:
  std::unique_ptr<Parameters> frozen_, trained_;
  nn::ArenaLayout layout_;
};

}  // namespace lockstep::backend
