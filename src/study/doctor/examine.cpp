#include "lockstep/study/doctor/examine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
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

Diagnosis Examination::all() {
  warm_up();
  look_at_ranks();
  for (const auto part :
       {&Examination::examine_floor, &Examination::examine_input, &Examination::examine_sums,
        &Examination::judge_machine, &Examination::examine_batch, &Examination::examine_precision,
        &Examination::examine_graph, &Examination::add_unmeasured})
    (this->*part)();
  diagnosis_.stopped = turns_.stopped();
  diagnosis_.source =
      fmt::format("measured on {} ranks, {} steps", control_.world(), turns_.steps_done());
  rank_findings(diagnosis_);
  return std::move(diagnosis_);
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
      Estimate{found.b_ms, found.a_ms - found.difference.high, found.a_ms - found.difference.low};
}

void Examination::examine_batch() {
  const char* what = "fixed costs of a step";
  if (over()) return not_measured(SlowReason::parallel_work, what, why_over());
  std::string why;
  train::TrainerSpec twice = run_.trainer_spec();
  twice.program.batch *= 2;
  if (run_.config().memory_limit > 0)
    return not_measured(SlowReason::parallel_work, what,
                        "memory-limit leaves no room for more rows");
  const auto one = variant(run_.trainer_spec(), silent_, why);
  const auto two = variant(twice, silent_, why);
  if (!one || !two) return not_measured(SlowReason::parallel_work, what, why);
  const auto more_rows = resident(2 * run_.config().batch);
  const Arm small = alone(*one);
  const Arm large{.trainer = *two, .resident = more_rows.get(), .together = false};
  turns_.block(large);
  const auto found =
      turns_.compare({small, Turns::usual}, {large, Turns::usual, 2}, share_of_rest());
  SlowCause finding{
      .reason = SlowReason::parallel_work,
      .what = fmt::format("t(b) = a + c b: a is {:.2f} ms of a step's {:.2f}",
                          2 * found.difference.ms, found.a_ms),
      .cost = found.difference,
      .not_measured = {},
      .change = fmt::format("--batch {}, with its learning rate", 2 * run_.config().batch)};
  if (worth_changing(finding, diagnosis_.step_ms) && !over()) {
    const auto reducing = variant(twice, run_.reducing(), why);
    if (reducing) {
      const Arm is = held(*trainer_);
      const Arm changed{.trainer = *reducing, .resident = more_rows.get()};
      turns_.block(changed);
      finding.effect =
          turns_.compare({is}, {changed, Turns::slowest, 2}, share_of_rest()).difference;
    }
  }
  add(std::move(finding));
}

void Examination::examine_precision() {
  using backend::Precision;
  const Precision now = run_.trainer_spec().program.precision;
  const Precision lower = now == Precision::fp32 && diagnosis_.on_gpus       ? Precision::tf32
                          : now == Precision::bf16 || now == Precision::fp16 ? now
                                                                             : Precision::bf16;
  const std::string what = fmt::format("arithmetic in {}", to_string(now));
  if (lower == now) return not_measured(SlowReason::precision, what, "there is no lower one");
  if (over()) return not_measured(SlowReason::precision, what, why_over());
  train::TrainerSpec spec = run_.trainer_spec();
  spec.program.precision = lower;
  std::string why;
  const auto trainer = variant(spec, run_.reducing(), why);
  if (!trainer) return not_measured(SlowReason::precision, what, why);
  const Arm is = held(*trainer_), changed = held(*trainer);
  turns_.block(changed);
  const auto found = turns_.compare({is}, {changed}, share_of_rest());
  add({.reason = SlowReason::precision,
       .what = what + " (speed only: the accuracy was not measured)",
       .cost = found.difference,
       .not_measured = {},
       .change = fmt::format("--precision {}", to_string(lower)),
       .effect = found.difference,
       .choice = true});
}

void Examination::examine_graph() {
  const bool has = run_.trainer_spec().graph;
  const std::string what = has ? "a recorded graph" : "gaps between launches";
  if (over()) return not_measured(SlowReason::parallel_work, what, why_over());
  std::string why = config::why_steps_differ(run_.config(), run_.spec().grid.replicas.count);
  if (!has && !why.empty()) return not_measured(SlowReason::parallel_work, what, why);
  train::TrainerSpec spec = run_.trainer_spec();
  spec.graph = !has;
  const auto trainer = variant(spec, run_.reducing(), why);
  if (!trainer) return not_measured(SlowReason::parallel_work, what, why);
  const Arm is = held(*trainer_), changed = held(*trainer);
  turns_.block(changed);
  const auto found = turns_.compare({is}, {changed}, share_of_rest());
  add({.reason = SlowReason::parallel_work,
       .what = what,
       .cost = found.difference,
       .not_measured = {},
       .change = has ? "--graph false" : "--graph true",
       .effect = found.difference});
}

void Examination::add_unmeasured() {
  not_measured(SlowReason::allocation, "one compute thread less",
               "a start has one number of threads: compare with another --threads");
  not_measured(SlowReason::monitoring, "validation and checkpoints",
               "lockstep doctor RUN reads them from a run's records");
}

}  // namespace lockstep::study
