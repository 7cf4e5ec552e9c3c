#include <tuple>
#include <utility>

#include "lockstep/base/error.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

InputBatch::InputBatch(const nn::Network& network, const backend::ProgramSpec& spec,
                       CudaDevice& device)
    : rows_(spec.batch), training_(spec.training), device_(device), places_(spec.slots + 1) {
  if (network.nodes.front().op == nn::Op::input) image_values_ = rows_ * network.input.count();
  image_bytes_ = image_values_ * data::bytes_of(spec.element);
  if (network.nodes.back().op == nn::Op::loss) targets_ = rows_;
  const std::size_t wanted = spec.loss.task == data::Task::classes ? 0 : targets_ * network.classes;
  for (BatchPlace& place : places_) {
    if (image_values_ > 0) place.bytes = DeviceBuffer(image_bytes_, "a batch of images");
    if (targets_ > 0)
      place.targets = DeviceBuffer(targets_ * sizeof(data::Target), "a batch of labels");
    if (wanted > 0)
      place.wanted = DeviceBuffer(wanted * sizeof(float), "what is wanted of a batch");
  }
  for (std::size_t slot = 0; slot < spec.slots; ++slot) place_of_slot_.push_back(slot);
  spare_ = spec.slots;
}

void InputBatch::copy(DeviceBuffer& to, const void* from) {
  if (to.size() > 0)
    check_cuda(
        cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyHostToDevice, device_.copy().get()),
        "cudaMemcpyAsync of a batch");
}

void InputBatch::fill(BatchPlace& place, const void* images, DeviceBuffer& to,
                      const data::Batch& batch) {
  check(batch.targets == nullptr || batch.wanted != nullptr || place.wanted.size() == 0,
        "a batch with targets says what is wanted of its outputs");
  device_.copy().wait(
      place.read);  // the readers of the place's last batch precede the next one's bytes
  copy(to, images);
  place.labelled = batch.targets != nullptr;
  if (place.labelled) {
    copy(place.targets, batch.targets);
    copy(place.wanted, batch.wanted);
  }
  place.written.record(device_.copy().get());
  place.normalised = &to == &place.floats;
  place.holds = {};
}

void InputBatch::turn_to_other() {
  places_[current()].read.record(device_.compute().get());
  std::swap(place_of_slot_[slot_], spare_);
  device_.compute().wait(places_[current()].written);  // the batch precedes its normalisation
}

void InputBatch::prefetch(const data::Batch& batch) {
  check(batch.capacity == rows_,
        "the batch does not have the size that the program was compiled for");
  check(batch.targets != nullptr || targets_ == 0 || !training_, "a batch to train on has targets");
  fill(other(), batch.images, other().bytes, batch);
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
  check(images.size() == image_values_ && targets.size() == targets_,
        "the input does not have the size that the program was compiled for");
  DeviceBuffer& floats = other().floats;
  if (floats.size() == 0 && !images.empty())
    floats = DeviceBuffer(images.size_bytes(), "a normalised batch");
  fill(other(), images.data(), floats, {.targets = targets.data()});
  turn_to_other();
}

namespace {

class ImageRunner final : public Runner {
 public:
  ImageRunner(Context& context, std::size_t unit) : Runner(context, unit) {
    const std::size_t channels = c.network.input.channels;
    check(c.spec.mean.size() == channels && c.spec.stddev.size() == channels,
          "mean and deviation must have one value for each channel");
    std::vector<float> numbers(4 * channels);
    for (std::size_t i = 0; i < channels; ++i) {
      std::tie(numbers[i], numbers[channels + i]) = backend::entry_of(c.spec, i);
      numbers[2 * channels + i] = c.spec.shaping.lowest(i);
      numbers[3 * channels + i] = c.spec.shaping.highest(i);
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
    in.count = c.spec.batch * c.network.input.height * c.network.input.width;
    in.channels = static_cast<int>(c.network.input.channels);
    in.padded = p.shape.channels;
    in.scale = scale_and_shift_.as<float>();
    in.shift = in.scale + in.channels;
    in.has_no_data = c.spec.no_data.has_value();
    in.no_data = c.spec.no_data.value_or(0);
    if (c.spec.shaping.any()) {
      in.curve = c.spec.shaping.curve;
      in.low = in.shift + in.channels;
      in.high = in.low + in.channels;
    }
    void* const out = c.at(p.value);
    const Storage storage = c.plan.storage;
    if (c.input.normalised()) {
      if (c.plan.fold) return fold_floats(in, *c.plan.fold, storage, out, c.stream());
      return convert_floats(in, storage, out, c.stream());
    }
    if (c.plan.fold)
      return fold_elements(c.spec.element, in, *c.plan.fold, storage, out, c.stream());
    normalise_elements(c.spec.element, in, storage, out, c.stream());
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
