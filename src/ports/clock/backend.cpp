#include "lockstep/backend/backend.hpp"

#include <fmt/core.h>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "ports/clock/parameters.hpp"
#include "ports/clock/program.hpp"
#include "ports/clock/vectors.hpp"

namespace lockstep::clock {
namespace {

class ClockBackend final : public backend::Backend {
 public:
  explicit ClockBackend(const backend::Pace& pace) : pace_(pace) {}
  std::string name() const override { return "clock"; }
  std::string description() const override {
    return fmt::format("{}a rehearsal that waits instead of computing, {}",
                       backend::rehearsal_prefix, describe(pace_));
  }
  device::Device& device() override { return device_; }
  backend::Vectors& vectors() override { return vectors_; }

  std::unique_ptr<backend::Parameters> make_part_parameters(const nn::Network& network,
                                                            backend::Precision precision,
                                                            backend::Keeps) override {
    return std::make_unique<ClockParameters>(network,
                                             time_tape(network, 1, precision, pace_).update_ms);
  }
  std::unique_ptr<backend::Program> compile_part(const nn::Network& network,
                                                 const backend::ProgramSpec& spec,
                                                 backend::Parameters&) override {
    return std::make_unique<ClockProgram>(
        network, spec, time_tape(network, spec.batch, spec.precision, pace_), device_.compute());
  }
  std::vector<double> norms(const backend::Parameters& parameters, backend::Part) override {
    return std::vector<double>(parameters.arena().slices.size());
  }
  void clip_gradients(backend::Parameters&, float) override {}
  void update(backend::Parameters& parameters, const optim::UpdateRule&, const optim::StepScalars&,
              std::size_t first, std::size_t last) override {
    device_.compute().pass(static_cast<ClockParameters&>(parameters).update_ms(first, last));
  }
  void update_statistics(backend::Parameters&, std::size_t) override {}
  void update_average(backend::Parameters&, float) override {}
  void swap_average(backend::Parameters&) override {}

 private:
  backend::Pace pace_;
  ClockDevice device_;
  ClockVectors vectors_;
};

}  // namespace
}  // namespace lockstep::clock

namespace lockstep::backend {

std::unique_ptr<Backend> make_clock_backend(const Pace& pace) {
  return std::make_unique<clock::ClockBackend>(pace);
}

}  // namespace lockstep::backend
