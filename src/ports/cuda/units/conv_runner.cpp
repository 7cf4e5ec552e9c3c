#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"
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

namespace {

/// Calls body(index in the plain layout, index in the GPU's) for each weight.
template <class Body>
void each_weight(const FilterShape& s, const Body& body) {
  const std::size_t pixels = s.kernel * s.kernel;
  for (std::size_t out = 0; out < s.outputs; ++out)
    for (std::size_t in = 0; in < s.inputs; ++in)
      for (std::size_t p = 0; p < pixels; ++p)
        body((out * s.inputs + in) * pixels + p, (out * pixels + p) * s.channels + in);
}

}  // namespace

void to_physical(const FilterShape& shape, std::span<const float> plain,
                 std::span<float> physical) {
  check(plain.size() == shape.plain_count() && physical.size() == shape.physical_count(),
        "weights of another size");
  std::fill(physical.begin(), physical.end(), 0.f);
  each_weight(shape, [&](std::size_t from, std::size_t to) { physical[to] = plain[from]; });
}

void to_plain(const FilterShape& shape, std::span<const float> physical, std::span<float> plain) {
  check(plain.size() == shape.plain_count() && physical.size() == shape.physical_count(),
        "weights of another size");
  each_weight(shape, [&](std::size_t to, std::size_t from) { plain[to] = physical[from]; });
}

std::optional<FilterShape> filter_shape(const nn::Network& network, const nn::Tensor& tensor) {
  if (tensor.role != nn::Role::conv_weight) return std::nullopt;
  const nn::Node& input = network.nodes[network.nodes[tensor.node].inputs.at(0)];
  const std::size_t channels =
      input.op == nn::Op::input ? padded_image_channels(tensor.shape[1]) : tensor.shape[1];
  return FilterShape{.outputs = tensor.shape[0],
                     .inputs = tensor.shape[1],
                     .kernel = tensor.shape[2],
                     .channels = channels};
}

nn::ArenaLayout arena_layout(const nn::Network& network) {
  return nn::arena_layout(network, [&](const nn::Tensor& tensor) {
    const auto filter = filter_shape(network, tensor);
    return filter ? filter->physical_count() : tensor.count();
  });
}

std::vector<Chunk> cut_chunks(const nn::ArenaLayout& layout) {
  std::vector<Chunk> chunks;
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const std::size_t begin = layout.slices[s].offset;
    const std::size_t end =
        s + 1 < layout.slices.size() ? layout.slices[s + 1].offset : layout.size;
    for (std::size_t at = begin; at < end; at += chunk_floats)
      chunks.push_back({at,
                        static_cast<std::uint32_t>(std::min<std::size_t>(end - at, chunk_floats)),
                        static_cast<std::uint32_t>(s)});
  }
  return chunks;
}

}  // namespace lockstep::cuda
