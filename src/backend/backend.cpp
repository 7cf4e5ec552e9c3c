// How layers are frozen. The network is cut after them into two parts, each of which is compiled as
// a program. The first one is an evaluation's: it runs forward only, with running statistics, in
// memory without gradients and momentum. The second one trains on what the first one makes, and its
// backward ends with its first layer. Callers see one program and one set of parameters, whose
// arena is that of the second part: so a trainer, an exchange, an update and a port have nothing to
// leave out.
#include "lockstep/backend/backend.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::backend {

namespace {

/// The spec of the frozen layers' program.
ProgramSpec evaluation(ProgramSpec spec) {
  spec.training = false;
  spec.frozen = true;
  spec.loss.smoothing = 0;
  spec.fuse_norms = false;
  spec.keeps_average = false;
  spec.keeps_second_moments = false;
  spec.update_bytes = 0;
  spec.exchange_bytes = 0;
  spec.recompute = {};
  spec.weights_later = 0;
  return spec;
}

/// Large blocks are resident in whole huge pages.
std::size_t bytes_of(const Program& program) {
  constexpr std::size_t page = std::size_t{2} << 20;
  const MemoryPlan taken = program.memory();
  return (taken.activations + page - 1) / page * page + (taken.workspace + page - 1) / page * page;
}

constexpr const char* handing_over = "frozen values";

/// Two programs as one: what that of the frozen layers makes is handed to the other one's forward.
class JoinedProgram final : public Program {
 public:
  JoinedProgram(std::unique_ptr<Program> frozen, std::unique_ptr<Program> trained, Vectors& vectors)
      : frozen_(std::move(frozen)), trained_(std::move(trained)), vectors_(vectors) {
    forward_ = frozen_->forward();
    forward_.push_back({handing_over, [this] { hand_over(); }, {}});
    forward_.insert(forward_.end(), trained_->forward().begin(), trained_->forward().end());
  }
  Program& trained() override { return *trained_; }
  const ProgramSpec& spec() const override { return trained_->spec(); }
  void select(std::size_t slot) override {
    for (Program* part : {frozen_.get(), trained_.get()}) part->select(slot);
  }
  void load(const data::Batch& batch) override {
    for (Program* part : {frozen_.get(), trained_.get()}) part->load(batch);
  }
  void prefetch(const data::Batch& batch) override {
    for (Program* part : {frozen_.get(), trained_.get()}) part->prefetch(batch);
  }
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override {
    frozen_->load_normalised(images, {});
    trained_->load_normalised({}, targets);
  }
  std::size_t input_place() const override { return frozen_->input_place(); }
  void set_input_place(std::size_t place) override {
    for (Program* part : {frozen_.get(), trained_.get()}) part->set_input_place(place);
  }
  void set_scalars(const optim::StepScalars& scalars) override { trained_->set_scalars(scalars); }
  const Tape& forward() const override { return forward_; }
  const Tape& backward(bool accumulate) const override { return trained_->backward(accumulate); }
  const Tape& weight_gradients(bool accumulate) const override {
    return trained_->weight_gradients(accumulate);
  }
  Boundary sent() override { return trained_->sent(); }
  Metrics take_metrics() override { return trained_->take_metrics(); }
  void copy_logits(std::span<float> logits) const override { trained_->copy_logits(logits); }
  MemoryPlan memory() const override {
    const MemoryPlan first = frozen_->memory(), second = trained_->memory();
    return {.activations = first.activations + second.activations,
            .without_reuse = first.without_reuse + second.without_reuse,
            .workspace = first.workspace + second.workspace,
            .made_again = first.made_again + second.made_again};
  }

 private:
  void hand_over() {
    const std::span<std::byte> from = frozen_->sent().values, to = trained_->received().values;
    check(from.size() == to.size(), "the two sides of a boundary differ");
    using enum comm::ElementType;
    const Precision precision = spec().precision;
    const auto type = value_bytes(precision) == sizeof(float) ? f32
                      : precision == Precision::bf16          ? bf16
                                                              : f16;
    const std::size_t count = from.size() / comm::bytes_of(type);
    vectors_.cast({from.data(), count, type}, {to.data(), count, type});
  }

  std::unique_ptr<Program> frozen_, trained_;
  Vectors& vectors_;
  Tape forward_;
};

}  // namespace

const Tape& Program::weight_gradients(bool) const {
  static const Tape none;
  return none;
}

Metrics& Metrics::operator+=(const Metrics& more) {
  loss += more.loss;
  rows += more.rows;
  top1 += more.top1;
  top5 += more.top5;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more.sums[i];
  return *this;
}

Metrics in_any_order(Metrics metrics) {
  constexpr double per_unit = 1 << 24;
  const auto round = [](double& value) { value = std::nearbyint(value * per_unit) / per_unit; };
  round(metrics.loss);
  std::ranges::for_each(metrics.sums, round);
  return metrics;
}

std::string without_threads(const std::string& description) {
  const std::size_t end = description.find(" thread");
  const std::size_t begin = description.rfind(", ", end);
  if (end == std::string::npos || begin == std::string::npos) return description;
  return description.substr(0, begin) +
         description.substr(std::min(description.find(',', end), description.size()));
}

void Backend::require_fit(const nn::Network& network, const ProgramSpec& spec) {
  if (network.frozen_nodes == 0) return require_part_fit(network, spec);
  const auto [frozen, trained] = nn::split_frozen(network);
  ProgramSpec with_weights = spec;
  const std::size_t copy_bytes = value_bytes(spec.precision) < sizeof(float) ? 2 : 0;
  with_weights.exchange_bytes += nn::numbers(frozen) * (sizeof(float) + copy_bytes);
  require_part_fit(trained, with_weights);
}

PlannedMemory Backend::plan(const nn::Network& network, const ProgramSpec& spec) {
  check(plans(), name() + " does not plan");
  ProgramSpec planned = spec;
  planned.planned = true;
  const auto parameters = make_parameters(network, spec.precision, Keeps::nothing);
  const nn::ArenaLayout& layout = parameters->layout();
  return {sizeof(float) * (3 * layout.size + layout.frozen_size),
          compile(network, planned, *parameters)->memory()};
}

std::optional<Floor> Backend::floor(const nn::Network& network, const ProgramSpec& spec) {
  if (network.frozen_nodes == 0) return floor_of_part(network, spec);
  const auto [frozen, trained] = nn::split_frozen(network);
  auto first = floor_of_part(frozen, evaluation(spec)), all = floor_of_part(trained, spec);
  if (!first || !all) return std::nullopt;
  first->steps.push_back({handing_over});
  all->steps.insert(all->steps.begin(), first->steps.begin(), first->steps.end());
  return all;
}

std::optional<std::size_t> Backend::measure_memory(const nn::Network& network,
                                                   std::span<const ProgramSpec> programs) {
  if (network.frozen_nodes == 0) return measure_part_memory(network, programs);
  const auto [frozen, trained] = nn::split_frozen(network);
  std::vector<ProgramSpec> first;
  for (const ProgramSpec& program : programs) first.push_back(evaluation(program));
  const auto one = measure_part_memory(frozen, first);
  if (!one) return std::nullopt;
  // All stay until the end, as in a run.
  const auto weights = make_part_parameters(frozen, programs.front().precision, Keeps::weights);
  std::vector<std::unique_ptr<Program>> kept;
  all_frozen_bytes_ = 0;
  for (const ProgramSpec& program : first) {
    kept.push_back(compile_part(frozen, program, *weights));
    all_frozen_bytes_ += bytes_of(*kept.back());
  }
  const auto other = measure_part_memory(trained, programs);
  return other ? std::max(one, other) : std::nullopt;
}

std::unique_ptr<Parameters> Backend::make_parameters(const nn::Network& network,
                                                     Precision precision, Keeps keeps) {
  if (network.frozen_nodes == 0) return make_part_parameters(network, precision, keeps);
  const auto [frozen, trained] = nn::split_frozen(network);
  auto first = make_part_parameters(frozen, precision,
                                    keeps == Keeps::nothing ? Keeps::nothing : Keeps::weights);
  auto parameters = make_part_parameters(trained, precision, keeps);
  parameters->add_frozen(network, std::move(first));
  return parameters;
}

std::unique_ptr<Program> Backend::compile(const nn::Network& network, const ProgramSpec& spec,
                                          Parameters& parameters) {
  check(spec.loss.weights.empty() || spec.loss.weights.size() == network.classes,
        "the loss has a weight for each output, or none");
  if (network.frozen_nodes == 0) return compile_part(network, spec, parameters);
  const auto [frozen, trained] = nn::split_frozen(network);
  auto first = compile_part(frozen, evaluation(spec), parameters.frozen());
  ProgramSpec second = spec;
  second.recompute.reserved += std::max(all_frozen_bytes_, bytes_of(*first)) +
                               parameters.layout().frozen_size * sizeof(float);
  auto last = compile_part(trained, second, parameters);
  return std::make_unique<JoinedProgram>(std::move(first), std::move(last), vectors());
}

std::vector<double> Backend::gradient_squares(const Parameters&) {
  throw Error("only CPUs clip the gradients of a part of a network");
}

void Backend::clip_by_norm(Parameters& parameters, float, double) {
  static_cast<void>(gradient_squares(parameters));
}

ReadFigures Backend::put_aside(std::vector<Program*> ran, const Parameters& parameters) {
  StepFigures figures;
  for (Program* program : ran) figures.metrics += program->take_metrics();
  figures.loss_scale = parameters.loss_scale();
  figures.clipped_norm = parameters.clipped_norm();
  figures.trust = parameters.trust_ratios();
  return [figures = std::move(figures)] { return figures; };
}

}  // namespace lockstep::backend
