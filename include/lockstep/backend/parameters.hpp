#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/initial_weights.hpp"
#include "lockstep/optim/loss_scale.hpp"
#include "lockstep/optim/rule.hpp"

namespace lockstep::backend {

enum class Part { weights, gradients, momentum, average, second_moments };

/// What parameters have memory for: all that a training needs, the weights alone, or, to plan,
/// nothing.
enum class Keeps { training, weights, nothing };

using optim::LossScale;

/// The state of a network on one device: flat buffers with one layout. Running statistics are at
/// the end: weights hold the running values, gradients this step's share of the batch statistics,
/// momentum and second moments nothing. The average is there only after start_average(), second
/// moments only after start_second_moments(). Slices of frozen layers have weights only, which
/// import and export reach; their average is the weights.
class Parameters {
 public:
  virtual ~Parameters() = default;
  const nn::ArenaLayout& layout() const { return frozen_ ? whole_ : arena(); }
  virtual float* device_pointer(Part part) = 0;  ///< the flat buffer that collectives work on
  /// Call it each time something has been put into the compute stream that writes to the weights at
  /// device_pointer(): a backend may keep other forms of them.
  virtual void weights_changed() {}
  /// Convert between the tensor's plain layout and the device's own. `plain` has tensor.count()
  /// floats.
  void import_slice(Part part, std::size_t slice, std::span<const float> plain);
  void export_slice(Part part, std::size_t slice, std::span<float> plain) const;
  /// Calls work(i) for each i below `count`, which may export a slice: on all threads that compute
  /// where exports can run at the same time, else one after the other. Throws what work throws.
  virtual void for_each(std::size_t count, const std::function<void(std::size_t i)>& work) const {
    for (std::size_t i = 0; i < count; ++i) work(i);
  }
  /// Keeps an average of the weights and running statistics from now on. It begins equal to them,
  /// also when there was one before. Backend::update_average() moves it.
  virtual void start_average() {}
  virtual bool has_average() const { return false; }
  /// Keeps second moments of the gradients from now on, all zero: for a rule that has them.
  virtual void start_second_moments() {}
  virtual bool has_second_moments() const { return false; }
  /// CRC-32C of the weights and, where they are kept, of momentum, average and second moments, as
  /// stored on the device. If it differs between ranks, they have diverged.
  std::uint32_t hash() const;
  /// fp16's dynamic loss scale, part of a training's state; nothing in the other precisions. Waits
  /// for the device.
  virtual std::optional<LossScale> loss_scale() const { return std::nullopt; }
  virtual void set_loss_scale(const LossScale&) {}
  /// The norm that the newest Backend::clip_gradients() found; 0 before the first. Waits for the
  /// device.
  virtual double clipped_norm() const { return 0; }
  /// Of the newest update of all slices; nothing before it, and for a rule without trust ratios.
  /// Waits for the device.
  virtual std::optional<optim::TrustRatios> trust_ratios() const { return std::nullopt; }
  /// The same by slice of the arena, 0 for one that is not adaptive. Only on CPUs.
  virtual std::vector<double> trust_by_slice() const { return {}; }

  /// Adds the weights of the frozen part of `network`, whose other part these are of.
  void add_frozen(const nn::Network& network, std::unique_ptr<Parameters> frozen);
  Parameters& frozen() const { return *frozen_; }

  // What ports implement, and all that they see: frozen slices are not among these.
  virtual const nn::ArenaLayout& arena() const = 0;
  virtual void import_own(Part part, std::size_t slice, std::span<const float> plain) = 0;
  virtual void export_own(Part part, std::size_t slice, std::span<float> plain) const = 0;
  virtual std::uint32_t own_hash() const = 0;

 private:
  std::unique_ptr<Parameters> frozen_;  ///< null where nothing is frozen
  nn::ArenaLayout whole_;               ///< the arena's slices, then those of `frozen_`
};

/// Bytes that updates by this rule take in addition to the parameters.
std::size_t update_bytes(const nn::Network& network, const optim::Formula& formula);

/// Fills the weights with their initial values, a pure function of the seed.
void initialise(const nn::Network& network, const nn::InitSpec& spec, Parameters& parameters);

}  // namespace lockstep::backend
