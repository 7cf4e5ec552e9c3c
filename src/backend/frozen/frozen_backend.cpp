#include "lockstep/backend/frozen/frozen_backend.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/frozen/frozen_parameters.hpp"
#include "backend/frozen/frozen_program.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/nn/freeze.hpp"

namespace lockstep::backend {

namespace {

FrozenParameters& both(Parameters& parameters) {
  return static_cast<FrozenParameters&>(parameters);
}

Parameters& trained_of(Parameters& parameters) { return both(parameters).trained(); }

const Parameters& trained_of(const Parameters& parameters) {
  return static_cast<const FrozenParameters&>(parameters).trained();
}

/// The spec of the frozen layers' program.
ProgramSpec evaluation(ProgramSpec spec) {
  spec.training = false;
  spec.frozen = true;
  spec.label_smoothing = 0;
  spec.fuse_norms = false;
  spec.keeps_average = false;
  spec.keeps_second_moments = false;
  spec.update_bytes = 0;
  spec.exchange_bytes = 0;
  spec.recompute = {};
  return spec;
}

/// Large blocks are resident in whole huge pages.
std::size_t bytes_of(const Program& program) {
  constexpr std::size_t page = std::size_t{2} << 20;
  const MemoryPlan taken = program.memory();
  return (taken.activations + page - 1) / page * page + (taken.workspace + page - 1) / page * page;
}

class FrozenBackend final : public Backend {
 public:
  FrozenBackend(Backend& inner, std::size_t last) : inner_(inner), last_(last) {}
  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  device::Device& device() override { return inner_.device(); }
  Vectors& vectors() override { return inner_.vectors(); }

  void require_fit(const nn::Network& network, const ProgramSpec& spec) override {
    const auto [frozen, trained] = nn::split_frozen(network, last_);
    ProgramSpec with_weights = spec;
    const std::size_t copy_bytes = value_bytes(spec.precision) < sizeof(float) ? 2 : 0;
    with_weights.exchange_bytes += nn::numbers(frozen) * (sizeof(float) + copy_bytes);
    inner_.require_fit(trained, with_weights);
  }
  bool offers_winograd(Precision precision) const override {
    return inner_.offers_winograd(precision);
  }
  bool shares_norms() const override { return inner_.shares_norms(); }
  Winograd measure_winograd(const nn::Network& network, const ProgramSpec& spec) override {
    return inner_.measure_winograd(network, spec);
  }
  std::optional<std::size_t> measure_memory(const nn::Network& network,
                                            std::span<const ProgramSpec> programs) override {
    const auto [frozen, trained] = nn::split_frozen(network, last_);
    std::vector<ProgramSpec> first;
    for (const ProgramSpec& program : programs) first.push_back(evaluation(program));
    const auto one = inner_.measure_memory(frozen, first);
    if (!one) return std::nullopt;
    // All stay until the end, as in a run.
    const auto weights = inner_.make_parameters(frozen, programs.front().precision, Keeps::weights);
    std::vector<std::unique_ptr<Program>> kept;
    all_frozen_bytes_ = 0;
    for (const ProgramSpec& program : first) {
      kept.push_back(inner_.compile(frozen, program, *weights));
      all_frozen_bytes_ += bytes_of(*kept.back());
    }
    const auto other = inner_.measure_memory(trained, programs);
    if (!other) return std::nullopt;
    return std::max(*one, *other);
  }

  std::unique_ptr<Parameters> make_parameters(const nn::Network& network, Precision precision,
                                              Keeps keeps) override {
    const auto [frozen, trained] = nn::split_frozen(network, last_);
    return std::make_unique<FrozenParameters>(
        network, inner_.make_parameters(frozen, precision, Keeps::weights),
        inner_.make_parameters(trained, precision, keeps));
  }
  std::unique_ptr<Program> compile(const nn::Network& network, const ProgramSpec& spec,
                                   Parameters& parameters) override {
    const auto [frozen, trained] = nn::split_frozen(network, last_);
    auto first = inner_.compile(frozen, evaluation(spec), both(parameters).frozen());
    ProgramSpec second = spec;
    second.recompute.reserved += std::max(all_frozen_bytes_, bytes_of(*first)) +
                                 parameters.layout().frozen_size * sizeof(float);
    auto last = inner_.compile(trained, second, trained_of(parameters));
    return std::make_unique<FrozenProgram>(spec, std::move(first), std::move(last), vectors());
  }

  ReadFigures put_aside(std::vector<Program*> ran, const Parameters& parameters) override {
    for (Program*& program : ran) program = &static_cast<FrozenProgram*>(program)->trained();
    return inner_.put_aside(std::move(ran), trained_of(parameters));
  }
  void judge_gradients(Parameters& parameters, const float* largest) override {
    inner_.judge_gradients(trained_of(parameters), largest);
  }
  std::vector<double> norms(const Parameters& parameters, Part part) override {
    return inner_.norms(trained_of(parameters), part);
  }
  void clip_gradients(Parameters& parameters, float limit) override {
    inner_.clip_gradients(trained_of(parameters), limit);
  }
  void update(Parameters& parameters, const optim::UpdateRule& rule,
              const optim::StepScalars& scalars, std::size_t first, std::size_t last) override {
    inner_.update(trained_of(parameters), rule, scalars, first, last);
  }
  void update_statistics(Parameters& parameters, std::size_t micro_batches) override {
    inner_.update_statistics(trained_of(parameters), micro_batches);
  }
  void update_average(Parameters& parameters, float share) override {
    inner_.update_average(trained_of(parameters), share);
  }
  void swap_average(Parameters& parameters) override {
    inner_.swap_average(trained_of(parameters));
  }
  void release_idle_memory() override { inner_.release_idle_memory(); }

 private:
  Backend& inner_;
  std::size_t last_;
  /// Of all the run's programs of frozen layers, once they were measured: each has its own values.
  std::size_t all_frozen_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_frozen_backend(Backend& inner, std::size_t last) {
  return std::make_unique<FrozenBackend>(inner, last);
}

}  // namespace lockstep::backend
