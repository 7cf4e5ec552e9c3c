#include "lockstep/base/error.hpp"
#include "ports/cuda/runtime/check.hpp"
#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

InputBatch::InputBatch(const nn::Network& network, const backend::ProgramSpec& spec,
                       CudaDevice& device)
    : rows_(spec.batch), row_values_(network.input.count()), device_(device) {
  for (Slot& slot : slots_) {
    slot.bytes = DeviceBuffer(rows_ * row_values_, "a batch of images");
    slot.targets = DeviceBuffer(rows_ * sizeof(data::Target), "a batch of labels");
  }
}

void InputBatch::copy(DeviceBuffer& to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, device_.copy().get()),
             "cudaMemcpyAsync of a batch");
}

void InputBatch::fill(Slot& slot, const void* images, DeviceBuffer& to, const void* targets) {
  device_.copy().wait(
      slot.read);  // the readers of the slot's last batch precede the next one's bytes
  copy(to, images, to.size());
  copy(slot.targets, targets, slot.targets.size());
  slot.written.record(device_.copy().get());
  slot.normalised = &to == &slot.floats;
  slot.holds = {};
}

void InputBatch::turn_to_other() {
  slots_[current_].read.record(device_.compute().get());
  current_ = 1 - current_;
  device_.compute().wait(slots_[current_].written);  // the batch precedes its normalisation
}

void InputBatch::prefetch(const data::Batch& batch) {
  check(batch.capacity == rows_,
        "the batch does not have the size that the program was compiled for");
  fill(other(), batch.images, other().bytes, batch.targets);
  other().holds = batch;
}

void InputBatch::load(const data::Batch& batch) {
  const data::Batch& there = other().holds;
  const bool is_there = there.images == batch.images && there.index == batch.index &&
                        there.epoch == batch.epoch && batch.images != nullptr;
  if (!is_there) prefetch(batch);
  other().holds = {};
  turn_to_other();
}

void InputBatch::load_normalised(std::span<const float> images,
                                 std::span<const data::Target> targets) {
  check(images.size() == rows_ * row_values_ && targets.size() == rows_,
        "the input does not have the size that the program was compiled for");
  DeviceBuffer& floats = other().floats;
  if (floats.size() == 0) floats = DeviceBuffer(images.size_bytes(), "a normalised batch");
  fill(other(), images.data(), floats, targets.data());
  turn_to_other();
}

namespace {

class ImageRunner final : public Runner {
 public:
  ImageRunner(Context& context, std::size_t unit) : Runner(context, unit) {
    const std::size_t channels = c.network.input.channels;
    check(c.spec.mean.size() == channels && c.spec.stddev.size() == channels,
          "mean and deviation must have one value for each channel");
    std::vector<float> numbers(2 * channels);
    for (std::size_t i = 0; i < channels; ++i) {
      const auto by = backend::arithmetic::pixel_scale(c.spec.mean[i], c.spec.stddev[i]);
      numbers[i] = by.scale;
      numbers[channels + i] = by.shift;
    }
    scale_and_shift_ = DeviceBuffer(numbers.size() * sizeof(float), "mean and deviation");
    check_cuda(cudaMemcpyAsync(scale_and_shift_.data(), numbers.data(), scale_and_shift_.size(),
                               cudaMemcpyHostToDevice, c.stream()),
               "cudaMemcpyAsync");
    c.device.compute()
        .synchronize();  // `numbers` must live until the copy ends; no step is running
  }

  void forward() override {
    ImageInput in;
    in.pixels = c.input.images();
    in.count = p.shape.rows;
    in.channels = static_cast<int>(c.network.input.channels);
    in.padded = p.shape.channels;
    in.scale = scale_and_shift_.as<float>();
    in.shift = in.scale + in.channels;
    const auto enter = c.input.normalised() ? convert_floats : normalise_bytes;
    enter(in, c.plan.storage, c.at(p.value), c.stream());
  }

  std::vector<backend::TapeStep> backward(bool) override { return {}; }

 private:
  DeviceBuffer scale_and_shift_;
};

}  // namespace

std::unique_ptr<Runner> make_image_runner(Context& context, std::size_t unit) {
  return std::make_unique<ImageRunner>(context, unit);
}

}  // namespace lockstep::cuda
