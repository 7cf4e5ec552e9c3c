#include "cuda/runner.hpp"

namespace lockstep::cuda {

void run_weight_gradient(Context& c, const PlannedConv& conv, const void* x, const void* dy,
                         bool accumulate, float* gradient) {
  const Storage storage = storage_of(conv.precision);
  const bool through_scratch = accumulate || storage != Storage::fp32;
  void* made = through_scratch ? static_cast<void*>(c.workspace) : gradient;
  conv.weight_gradient->run({x, made, dy}, c.workspace + conv.gradient_scratch);
  if (through_scratch)
    add_gradient(made, conv.shape.weight_count(), storage, accumulate, gradient, c.stream());
}

namespace {

class ConvRunner final : public Runner {
 public:
  ConvRunner(Context& context, std::size_t unit)
      : Runner(context, unit),
        weights_(c.parameters.readable(node().name + ".weight")),
        gradient_(c.parameters.find(Part::gradients, node().name + ".weight")) {}

  void forward() override {
    p.conv->forward->run({c.at(input().value), weights_, c.at(p.value)}, c.workspace);
  }

  // The weight gradient last: behind it nothing reads this convolution's weights any more.
  std::vector<TapeStep> backward(bool accumulate) override {
    std::vector<TapeStep> steps;
    if (p.conv->data_gradient)
      steps.push_back({p.unit.name + " data gradient", [this] { data_gradient(); }, {}});
    steps.push_back({p.unit.name + " weight gradient",
                     [this, accumulate] { weight_gradient(accumulate); },
                     {c.parameters.slice_index(node().name + ".weight")}});
    return steps;
  }

 private:
  void data_gradient() {
    p.conv->data_gradient->run({c.at(p.input_gradient), weights_, first_gradient()}, c.workspace);
  }
  void weight_gradient(bool accumulate) {
    run_weight_gradient(c, *p.conv, c.at(input().value), first_gradient(), accumulate, gradient_);
  }

  const void* weights_;
  float* gradient_;
};

}  // namespace

std::unique_ptr<Runner> make_conv_runner(Context& context, std::size_t unit) {
  return std::make_unique<ConvRunner>(context, unit);
}

}  // namespace lockstep::cuda
