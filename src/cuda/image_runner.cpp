#include "cuda/check.hpp"
#include "cuda/runner.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

InputBatch::InputBatch(const nn::Network& network, const ProgramSpec& spec, CudaDevice& device)
    : rows_(spec.batch),
      row_values_(network.input.count()),
      device_(device),
      bytes_(rows_ * row_values_, "a batch of images"),
      targets_(rows_ * sizeof(data::Target), "a batch of labels") {}

void InputBatch::begin() {
  // Those who read the last batch precede the next one's bytes.
  device_.copy().wait(*device_.compute().record());
}

void InputBatch::copy(DeviceBuffer& to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, device_.copy().get()),
             "cudaMemcpyAsync of a batch");
}

void InputBatch::end() {
  device_.compute().wait(*device_.copy().record());  // the batch precedes its normalisation
}

void InputBatch::load(const data::Batch& batch) {
  check(batch.capacity == rows_, "the batch has not the size that the program was compiled for");
  begin();
  copy(bytes_, batch.images, rows_ * row_values_);
  copy(targets_, batch.targets, rows_ * sizeof(data::Target));
  end();
  normalised_ = false;
}

void InputBatch::load_normalised(std::span<const float> images,
                                 std::span<const data::Target> targets) {
  check(images.size() == rows_ * row_values_ && targets.size() == rows_,
        "the input has not the size that the program was compiled for");
  if (floats_.size() == 0) floats_ = DeviceBuffer(images.size_bytes(), "a normalised batch");
  begin();
  copy(floats_, images.data(), images.size_bytes());
  copy(targets_, targets.data(), targets.size_bytes());
  end();
  normalised_ = true;
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
      const auto by = arithmetic::pixel_scale(c.spec.mean[i], c.spec.stddev[i]);
      numbers[i] = by.scale;
      numbers[channels + i] = by.shift;
    }
    scale_and_shift_ = DeviceBuffer(numbers.size() * sizeof(float), "mean and deviation");
    check_cuda(cudaMemcpyAsync(scale_and_shift_.data(), numbers.data(), scale_and_shift_.size(),
                               cudaMemcpyHostToDevice, c.stream()),
               "cudaMemcpyAsync");
    c.device.compute().synchronize();  // `numbers` ends here; programs are made outside of steps
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

  std::vector<TapeStep> backward(bool) override { return {}; }

 private:
  DeviceBuffer scale_and_shift_;
};

}  // namespace

std::unique_ptr<Runner> make_image_runner(Context& context, std::size_t unit) {
  return std::make_unique<ImageRunner>(context, unit);
}

}  // namespace lockstep::cuda
