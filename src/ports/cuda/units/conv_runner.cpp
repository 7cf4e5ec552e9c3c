#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

void run_weight_gradient(Context& c, const PlannedConv& conv, ConvOperands operands,
                         bool accumulate, float* gradient) {
  const Storage storage = storage_of(conv.precision);
  const bool through_scratch = accumulate || conv.fold || storage != Storage::fp32;
  void* made = through_scratch ? static_cast<void*>(c.workspace) : gradient;
  operands.w = made;
  conv.weight_gradient->run(operands, c.workspace + conv.gradient_scratch);
  if (conv.fold)
    unfold_gradient(made, *conv.fold, storage, accumulate, gradient, c.stream());
  else if (through_scratch)
    add_gradient(made, conv.shape.weight_count(), storage, accumulate, gradient, c.stream());
}

namespace {

class ConvRunner final : public Runner {
 public:
  ConvRunner(Context& context, std::size_t unit)
      : Runner(context, unit),
        weights_(c.parameters.readable(node().name + ".weight")),
        gradient_(c.parameters.find(backend::Part::gradients, node().name + ".weight")) {
    if (!p.conv->fusion.norm_gradient) return;
    const std::string& name = c.network.nodes[input().unit.node].name;
    gamma_ = c.parameters.find(backend::Part::weights, name + ".weight");
    beta_ = c.parameters.find(backend::Part::weights, name + ".bias");
  }

  void forward() override {
    const void* weights = weights_;
    if (p.conv->fold) {
      fold_weights(weights_, *p.conv->fold, c.plan.storage, c.workspace, c.stream());
      weights = c.workspace;
    }
    p.conv->forward->run({x(), weights, c.at(p.value), norms()},
                         c.workspace + p.conv->weights_scratch);
  }

  // The weight gradient comes last: after it nothing reads this convolution's weights.
  std::vector<backend::TapeStep> backward(bool accumulate) override {
    std::vector<backend::TapeStep> steps;
    if (p.conv->data_gradient)
      steps.push_back({p.unit.name + " data gradient",
                       [this] { data_gradient(); },
                       {},
                       p.conv->data_gradient->engine()});
    steps.push_back({p.unit.name + " weight gradient",
                     [this, accumulate] { weight_gradient(accumulate); },
                     {c.parameters.slice_index(node().name + ".weight")},
                     p.conv->weight_gradient->engine()});
    return steps;
  }

 private:
  /// The batch norm before this convolution, which the convolution applies as it reads, and the
  /// sums for the one after it.
  NormOperands norms() const {
    NormOperands norm;
    if (p.conv->fusion.sums) {
      norm.sum = c.at<float>(p.sums);
      norm.square_sum = norm.sum + p.shape.channels;
    }
    if (!p.conv->fusion.normalised && !p.conv->fusion.norm_gradient) return norm;
    const PlannedUnit& applied = input();
    const NormChannels n = norm_channels(c.at<float>(applied.extra), applied.shape.channels);
    norm.scale = n.half_scale;
    norm.shift = n.half_shift;
    norm.mean = n.mean;
    norm.inverse_deviation = n.inverse_deviation;
    norm.gamma = gamma_;
    norm.beta = beta_;
    norm.g = c.at(p.input_gradient);
    norm.gradient_sums = c.at<float>(p.gradient_sums);
    return norm;
  }

  const void* before_norm() const { return c.at(c.unit(input().unit.input).value); }
  const void* x() const { return p.conv->fusion.normalised ? before_norm() : c.at(input().value); }

  void data_gradient() {
    const void* at_x = p.conv->fusion.norm_gradient ? before_norm() : c.at(p.input_gradient);
    p.conv->data_gradient->run({at_x, weights_, first_gradient(), norms()}, c.workspace);
  }
  void weight_gradient(bool accumulate) {
    run_weight_gradient(c, *p.conv, {x(), nullptr, first_gradient(), norms()}, accumulate,
                        gradient_);
  }

  const void* weights_;
  float* gradient_;
  const float *gamma_ = nullptr, *beta_ = nullptr;  // of the batch norm that it applies
};

}  // namespace

std::unique_ptr<Runner> make_conv_runner(Context& context, std::size_t unit) {
  return std::make_unique<ConvRunner>(context, unit);
}

}  // namespace lockstep::cuda
