#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// Batches on the device: one for each slot of the program, and the next one, which the copy stream
/// brings at the same time if it was given to prefetch().
class InputBatch {
 public:
  InputBatch(const nn::Network& network, const backend::ProgramSpec& spec, CudaDevice& device);
  /// Which of the program's slots all later calls are about, but prefetch().
  void select(std::size_t slot) { slot_ = slot; }
  void prefetch(const data::Batch& batch);
  /// Work that is put into the compute stream from now on uses this batch.
  void load(const data::Batch& batch);
  void load_normalised(std::span<const float> images, std::span<const data::Target> targets);

  std::size_t place() const { return current(); }
  void set_place(std::size_t place) {
    check(place == current() || place == spare_, "another slot's batch is in that place");
    if (place != current()) turn_to_other();
  }
  bool normalised() const { return places_[current()].normalised; }
  const void* images() const {
    const BatchPlace& place = places_[current()];
    return place.normalised ? place.floats.data() : place.bytes.data();
  }
  /// nullptr where the batch has none.
  const data::Target* targets() const {
    const BatchPlace& place = places_[current()];
    return place.labelled ? place.targets.as<data::Target>() : nullptr;
  }
  /// What labels and values should be; nullptr with classes.
  const float* wanted() const { return places_[current()].wanted.as<float>(); }

 private:
  struct BatchPlace {
    DeviceBuffer bytes, floats, targets, wanted;
    CudaEvent written;        ///< in the copy stream
    CudaEvent read;           ///< in the compute stream: work after it does not need the batch
    data::Batch holds;        ///< images: nullptr unless it is a prefetched batch
    bool normalised = false;  ///< the batch is in floats
    bool labelled = false;    ///< the batch has targets
  };
  std::size_t current() const { return place_of_slot_[slot_]; }
  BatchPlace& other() { return places_[spare_]; }
  void copy(DeviceBuffer& to, const void* from);
  void fill(BatchPlace& place, const void* images, DeviceBuffer& to, const data::Batch& batch);
  void turn_to_other();

  std::size_t rows_;
  bool training_;
  std::size_t image_values_ = 0, image_bytes_ = 0,
              targets_ = 0;  ///< of a batch; 0 in a stage that has none
  CudaDevice& device_;
  std::vector<BatchPlace> places_;
  std::vector<std::size_t> place_of_slot_;
  std::size_t slot_ = 0, spare_ = 1;
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
  NormChunks chunks = {};      ///< for all batch norms of the program, in turn
  std::size_t slot = 0;        ///< whose micro-batch runs
  bool after_forward = false;  ///< what is made again has another place then

  cudaStream_t stream() const { return device.compute().get(); }
  template <class T = void>
  T* at(Place place) const {
    if (place == nowhere) return nullptr;
    return reinterpret_cast<T*>(block + plan.offset(place, after_forward, slot));
  }
  const PlannedUnit& unit(std::size_t u) const { return plan.units[u]; }
};

/// One unit on the tape. All work goes to the compute stream; nothing waits on the host.
class Runner {
 public:
  Runner(Context& context, std::size_t index) : c(context), p(context.plan.units[index]) {}
  virtual ~Runner() = default;
  virtual void forward() = 0;
  /// The same for values that backward makes again. What a batch norm learnt from the whole batch
  /// stays.
  virtual void again() { forward(); }
  /// What a rank without rows does in forward, where others wait for it; empty for nothing.
  virtual std::function<void()> join() { return {}; }
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
std::unique_ptr<Runner> make_mean_pool_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_subsample_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_head_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_receive_runner(Context& context, std::size_t unit);
std::unique_ptr<Runner> make_send_runner(Context& context, std::size_t unit);

/// Computes the weight gradient of a convolution or linear layer from x and y of `operands` into
/// its slice of the arena. cuDNN writes in the storage of its operands and never adds, so the
/// result may go through scratch, and does where the weights are folded.
void run_weight_gradient(Context& context, const PlannedConv& conv, ConvOperands operands,
                         bool accumulate, float* gradient);

}  // namespace lockstep::cuda
