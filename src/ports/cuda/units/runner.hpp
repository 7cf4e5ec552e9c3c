#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// Batches on the device: the current one, and the next one, which the copy stream brings at the
/// same time if it was given to prefetch().
class InputBatch {
 public:
  InputBatch(const nn::Network& network, const backend::ProgramSpec& spec, CudaDevice& device);
  void prefetch(const data::Batch& batch);
  /// Work that is put into the compute stream from now on uses this batch.
  void load(const data::Batch& batch);
  void load_normalised(std::span<const float> images, std::span<const data::Target> targets);

  std::size_t place() const { return current_; }
  void set_place(std::size_t place) {
    if (place != current_) turn_to_other();
  }
  bool normalised() const { return slots_[current_].normalised; }
  const void* images() const {
    const Slot& slot = slots_[current_];
    return slot.normalised ? slot.floats.data() : slot.bytes.data();
  }
  const data::Target* targets() const { return slots_[current_].targets.as<data::Target>(); }

 private:
  struct Slot {
    DeviceBuffer bytes, floats, targets;
    CudaEvent written;        ///< in the copy stream
    CudaEvent read;           ///< in the compute stream: work after it does not need the batch
    data::Batch holds;        ///< images: nullptr unless it is a prefetched batch
    bool normalised = false;  ///< the batch is in floats
  };
  Slot& other() { return slots_[1 - current_]; }
  void copy(DeviceBuffer& to, const void* from, std::size_t bytes);
  void fill(Slot& slot, const void* images, DeviceBuffer& to, const void* targets);
  void turn_to_other();

  std::size_t rows_, row_values_;
  CudaDevice& device_;
  Slot slots_[2];
  std::size_t current_ = 0;
};

/// What the steps of one program share.
struct Context {
  const nn::Network& network;
  const backend::ProgramSpec& spec;
  const ProgramPlan& plan;
  CudaParameters& parameters;
  CudaDevice& device;
  InputBatch& input;
  std::byte* block = nullptr;      ///< plan.block bytes
  std::byte* workspace = nullptr;  ///< plan.workspace bytes
  unsigned* tickets = nullptr;     ///< plan.tickets of them, which its kernels keep at 0
  DeviceMetrics* metrics = nullptr;

  cudaStream_t stream() const { return device.compute().get(); }
  template <class T = void>
  T* at(Place place) const {
    return place == nowhere ? nullptr : reinterpret_cast<T*>(block + place);
  }
  const PlannedUnit& unit(std::size_t u) const { return plan.units[u]; }
};

/// One unit on the tape. All work goes to the compute stream; nothing waits on the host.
class Runner {
 public:
  Runner(Context& context, std::size_t index) : c(context), p(context.plan.units[index]) {}
  virtual ~Runner() = default;
  virtual void forward() = 0;
  /// The unit's steps in backward, in order; empty where nothing has a gradient.
  virtual std::vector<backend::TapeStep> backward(bool accumulate) = 0;

 protected:
  const nn::Node& node() const { return c.network.nodes[p.unit.node]; }
  const PlannedUnit& input() const { return c.plan.units[p.unit.input]; }
  /// The gradients that add up to the value's; the second may be missing.
  const void* first_gradient() const { return c.at(p.gradients[0]); }
  const void* second_gradient() const {
    return p.gradients.size() > 1 ? c.at(p.gradients[1]) : nullptr;
  }

  Context& c;
  const PlannedUnit& p;
};

std::unique_ptr<Runner> make_image_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_conv_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_norm_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_max_pool_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_subsample_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_head_runner(Context& context, std::size_t unit);

/// Computes the weight gradient of a convolution or linear layer from x and y of `operands` into
/// its slice of the arena. cuDNN writes in the storage of its operands and never adds, so the
/// result may go through scratch.
void run_weight_gradient(Context& context, const PlannedConv& conv, ConvOperands operands,
                         bool accumulate, float* gradient);

}  // namespace lockstep::cuda
