#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

namespace {

class NormRunner final : public Runner {
 public:
  NormRunner(Context& context, std::size_t unit) : Runner(context, unit) {
    const auto find = [&](backend::Part part, const char* name) {
      return c.parameters.find(part, node().name + name);
    };
    numbers_ = {.gamma = find(backend::Part::weights, ".weight"),
                .beta = find(backend::Part::weights, ".bias"),
                .running_mean = find(backend::Part::weights, ".running_mean"),
                .running_var = find(backend::Part::weights, ".running_var"),
                .dgamma = find(backend::Part::gradients, ".weight"),
                .dbeta = find(backend::Part::gradients, ".bias"),
                .mean_share = find(backend::Part::gradients, ".running_mean"),
                .var_share = find(backend::Part::gradients, ".running_var"),
                .epsilon = node().epsilon,
                .momentum = node().momentum};
  }

  void forward() override {
    if (input().sums != nowhere)
      norm_statistics_of_sums(c.at<float>(input().sums), p.shape, numbers_, channels(), c.stream());
    else if (c.plan.training)
      norm_statistics(x(), p.shape, c.plan.storage, numbers_, channels(), scratch(), c.stream());
    else
      norm_running(p.shape, numbers_, channels(), c.stream());
    if (p.value != nowhere) again();  // else its reader applies it
  }

  /// From the moments that the first pass left.
  void again() override {
    const void* skip = p.unit.skip ? c.at(c.unit(*p.unit.skip).value) : nullptr;
    norm_apply({x(), skip, p.unit.relu, c.at(p.value), c.at<std::uint8_t>(p.mask)}, p.shape,
               c.plan.storage, channels(), c.stream());
  }

  std::vector<backend::TapeStep> backward(bool accumulate) override {
    backend::TapeStep step{
        p.unit.name + " gradient", [this, accumulate] { differentiate(accumulate); }, {}};
    for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"})
      step.final_slices.push_back(c.parameters.slice_index(node().name + name));
    return {step};
  }

 private:
  const void* x() const { return c.at(input().value); }
  NormChannels channels() const { return norm_channels(c.at<float>(p.extra), p.shape.channels); }
  SumScratch scratch() const { return {c.workspace, c.tickets}; }

  void differentiate(bool accumulate) {
    NormBackward op{};
    op.first = first_gradient();
    if (p.value == nowhere) return differentiate_applied(op, accumulate);
    op.second = second_gradient();
    op.x = x();
    op.mask = !p.unit.relu ? Mask::none : p.unit.skip ? Mask::from_bits : Mask::from_x;
    op.bits = c.at<std::uint8_t>(p.mask);
    op.g = c.at(p.skip_gradient);
    norm_gradients(op, p.shape, c.plan.storage, numbers_, channels(), accumulate,
                   c.parameters.scalars(), scratch(), c.stream());
    norm_input_gradient(op, p.shape, c.plan.storage, channels(), c.at(p.input_gradient),
                        c.stream());
  }

  /// The reader's data gradient ended before the ReLU and made the sums.
  void differentiate_applied(NormBackward& op, bool accumulate) {
    op.x = x();
    norm_gradients_of_sums(c.at<float>(c.unit(p.unit.readers[0]).gradient_sums), p.shape, numbers_,
                           channels(), accumulate, c.parameters.scalars(), c.stream());
    norm_input_gradient(op, p.shape, c.plan.storage, channels(), c.at(p.input_gradient),
                        c.stream());
  }

  NormParameters numbers_{};
};

}  // namespace

std::unique_ptr<Runner> make_norm_runner(Context& context, std::size_t unit) {
  return std::make_unique<NormRunner>(context, unit);
}

}  // namespace lockstep::cuda
