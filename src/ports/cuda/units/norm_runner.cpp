#include "lockstep/backend/norm_span.hpp"
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
                .momentum = node().momentum,
                .chunks = c.chunks};
  }

  void forward() override {
    const bool sums_here = input().sums == nowhere && c.plan.training;
    if (input().sums != nowhere)
      norm_statistics_of_sums(c.at<float>(input().sums), p.shape, numbers_, channels(), c.stream());
    else if (sums_here)
      norm_statistics(x(), p.shape, c.plan.storage, numbers_, channels(), scratch(), c.stream());
    else
      norm_running(p.shape, numbers_, channels(), c.stream());
    if (shares()) {
      gather();
      norm_statistics_of_ranks(p.shape, numbers_, channels(), c.stream());
    }
    // Sums walk from the last rows to the first; otherwise a convolution has just written the last.
    if (p.value != nowhere) apply(!sums_here);  // else its reader applies it
  }

  /// From the moments that the first pass left.
  void again() override { apply(false); }

  std::function<void()> join() override {
    if (!shares()) return {};
    return [this] {
      norm_nothing(c.chunks, p.shape.channels, c.stream());
      gather();
    };
  }

  std::vector<backend::TapeStep> backward(bool accumulate) override {
    backend::TapeStep step{
        p.unit.name + " gradient", [this, accumulate] { differentiate(accumulate); }, {}};
    step.join = join();
    for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"})
      step.final_slices.push_back(c.parameters.slice_index(node().name + name));
    return {step};
  }

 private:
  void apply(bool down) {
    NormApply op{x(), nullptr, p.unit.relu, c.at(p.value), c.at<std::uint8_t>(p.mask), down};
    if (p.unit.skip) add_skip(op, c.unit(*p.unit.skip));
    norm_apply(op, p.shape, c.plan.storage, channels(), c.stream());
  }
  /// The skip's value, or what is before its batch norm, which is applied here.
  void add_skip(NormApply& op, const PlannedUnit& skip) const {
    op.skip = c.at(skip.value);
    if (skip.value != nowhere) return;
    const NormChannels n = norm_channels(c.at<float>(skip.extra), skip.shape.channels);
    op.skip = c.at(c.unit(skip.unit.input).value);
    op.skip_scale = n.scale;
    op.skip_shift = n.shift;
  }

  const void* x() const { return c.at(input().value); }
  NormChannels channels() const { return norm_channels(c.at<float>(p.extra), p.shape.channels); }
  SumScratch scratch() const { return {c.workspace, c.tickets}; }

  bool shares() const { return c.chunks.all != nullptr && c.plan.training; }
  /// Until it is called, the chunks have this rank's numbers; then those of all.
  void gather() const {
    const std::size_t floats = c.chunks.ranks * NormChunks::floats(p.shape.channels);
    c.spec.norm_span->gather({c.chunks.all, floats}, p.unit.name, c.device.compute());
  }

  void differentiate(bool accumulate) {
    NormBackward op{};
    op.first = first_gradient();
    if (sums_of_gradient(c.plan, p) != nowhere) return differentiate_summed(op, accumulate);
    op.second = second_gradient();
    op.x = x();
    op.mask = !p.unit.relu ? Mask::none : p.unit.skip ? Mask::from_bits : Mask::from_x;
    op.bits = c.at<std::uint8_t>(p.mask);
    op.g = c.at(p.skip_gradient);
    norm_gradients(op, p.shape, c.plan.storage, numbers_, channels(), accumulate,
                   c.parameters.scalars(), scratch(), c.stream());
    end_sums(accumulate);
    norm_input_gradient(op, p.shape, c.plan.storage, channels(), c.at(p.input_gradient),
                        c.stream());
  }

  void end_sums(bool accumulate) {
    if (!shares()) return;
    gather();
    norm_gradients_of_ranks(p.shape, numbers_, channels(), accumulate, c.parameters.scalars(),
                            c.stream());
  }

  /// The reader's data gradient ended before the ReLU and made the sums.
  void differentiate_summed(NormBackward& op, bool accumulate) {
    op.x = x();
    op.down = true;  // the data gradient has just written the last rows
    norm_gradients_of_sums(c.at<float>(sums_of_gradient(c.plan, p)), p.shape, numbers_, channels(),
                           accumulate, c.parameters.scalars(), c.stream());
    end_sums(accumulate);
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
