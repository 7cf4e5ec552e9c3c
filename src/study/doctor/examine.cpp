#include "lockstep/study/doctor/examine.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/train/agreement.hpp"
#include "study/doctor/examination.hpp"

namespace lockstep::study {
namespace {

constexpr double block_ms = 400;
constexpr double most_steps = 200;

}  // namespace

Diagnosis examine(train::PreparedRun& run, comm::Control& control, const ExamineSpec& spec) {
  return Examination(run, control, spec).all();
}

Examination::Examination(train::PreparedRun& run, comm::Control& control, const ExamineSpec& spec)
    : run_(run),
      control_(control),
      turns_(
          control, [&run](std::uint64_t batch) { return run.data().global_rows(batch); },
          spec.seconds),
      silent_(run.reducing().rank(), run.reducing().world(), run.reducing().network(),
              run.reducing().activity),
      small_(run.reducing()) {
  const auto loading = run.data().loading({}, run.backend().device());
  check(loading.has_value(), "a training without a step");
  loading_ = *loading;
  loading_.epochs = 1 << 20;
  loader_ = std::make_unique<data::Loader>(run.data().training(), loading_, run.backend().device());
  trainer_ = std::make_unique<train::Trainer>(run.trainer_spec(), run.backend(), run.reducing());
  train::require_same_form(trainer_->parameters(), run.backend(), control);
  rows_ = resident(run.config().batch);
  diagnosis_.batch = run.config().batch;
  diagnosis_.steps_per_epoch = run.data().steps_per_epoch();
  diagnosis_.on_gpus = run.backend().name() == "cuda";
}

std::unique_ptr<ResidentBatch> Examination::resident(std::size_t global_rows) {
  const data::Batch sample = loader_->next();
  auto rows = std::make_unique<ResidentBatch>(sample, run_.trainer_spec().network.input.count(),
                                              global_rows, control_.rank(), control_.world(),
                                              run_.backend().device());
  loader_->release(sample);
  return rows;
}

std::unique_ptr<train::Trainer> Examination::variant(const train::TrainerSpec& spec,
                                                     comm::Communicator& communicator,
                                                     std::string& why) {
  std::unique_ptr<train::Trainer> trainer;
  try {
    trainer = std::make_unique<train::Trainer>(spec, run_.backend(), communicator);
  } catch (const InputError& error) {
    why = error.what();
  }
  if (control_.any(!trainer, "a variant of the doctor")) {
    if (why.empty()) why = "another rank cannot";
    trainer.reset();
  }
  return trainer;
}

std::optional<Interval> Examination::gain_by(train::Trainer& base, const train::TrainerSpec& spec,
                                             std::string& why) {
  const auto trainer = variant(spec, run_.reducing(), why);
  if (!trainer) return std::nullopt;
  const Arm is = held(base), changed = held(*trainer);
  turns_.block(changed);
  return turns_.compare({is}, {changed}, share_of_rest()).difference;
}

double Examination::share_of_rest() {
  const double seconds = turns_.left_s() / std::max(1, comparisons_left_);
  --comparisons_left_;
  return seconds;
}

/// First steps also compile; then blocks get their length.
void Examination::warm_up() {
  turns_.block(as_is());
  const double step_ms = Turns::slowest(turns_.block(as_is()));
  turns_.set_steps(static_cast<std::size_t>(std::clamp(block_ms / step_ms, 2.0, most_steps)));
}

void Examination::examine_floor() {
  if (over()) return;
  std::string why;
  const auto trainer = variant(run_.trainer_spec(), silent_, why);
  if (!trainer) return;
  const Arm is = as_is(), none = alone(*trainer);
  turns_.block(none);
  const Turns::Compared found = turns_.compare({is}, {none, Turns::usual}, share_of_rest());
  diagnosis_.step_ms = found.a_ms;
  diagnosis_.floor =
      Interval{found.a_ms - found.difference.high, found.b_ms, found.a_ms - found.difference.low};
}

}  // namespace lockstep::study
