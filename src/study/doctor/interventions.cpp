#include "lockstep/study/doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/loading/sampler.hpp"
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
  train::require_same_form(trainer_->parameters(), run.backend(), run.pipeline(), control);
  rows_ = resident(run.config().batch);
  diagnosis_.batch = run.config().batch;
  diagnosis_.steps_per_epoch = run.data().steps_per_epoch();
  diagnosis_.on_gpus = run.backend().name() == "cuda";
}

std::unique_ptr<ResidentBatch> Examination::resident(std::size_t global_rows) {
  const data::Batch sample = loader_->next();
  auto rows = std::make_unique<ResidentBatch>(
      sample, backend::image_bytes(run_.trainer_spec().network, run_.trainer_spec().program),
      run_.trainer_spec().network.classes, global_rows,
      train::own_rows(global_rows, run_.trainer_spec().shards,
                      {.index = control_.rank(), .count = control_.world(), .ranks = {}}),
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

/// The list of interventions: each measures, changes one thing, and adds its findings.
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

/// The training as it is, against the same with rows that are in memory already; and what of that
/// is waiting, and what the loader's threads take from the step's cores.
void Examination::examine_input() {
  const char* what = "rows from the loader";
  if (over()) return not_measured(SlowReason::input, what, why_over());
  const Arm is = as_is(), none = held(*trainer_);
  const auto found = turns_.compare({is}, {none}, share_of_rest());
  SlowCause finding{.reason = SlowReason::input, .what = what, .cost = found.difference};
  if (!worth_changing(finding, diagnosis_.step_ms) || over()) return add(std::move(finding));
  const Arm thrown{.trainer = *trainer_, .resident = rows_.get(), .loader = loader_.get()};
  const Interval wait = turns_.compare({is}, {thrown}, share_of_rest()).difference;
  const double cores_ms = found.difference.middle - wait.middle;
  finding.what = fmt::format("{:.2f} ms wait for rows, {:.2f} ms lost to the loader's threads; {}",
                             wait.middle, cores_ms, describe_rows());
  const std::size_t workers = loading_.workers;
  std::size_t best = workers;
  Interval effect;
  for (const std::size_t other : {workers + 1, workers - 1}) {
    if (other == 0 || over()) continue;
    const Interval gain = try_workers(other);
    if (gain.low <= 0 || gain.middle <= effect.middle) continue;
    best = other;
    effect = gain;
  }
  if (best != workers) {
    finding.change = fmt::format("--data.workers {}", best);
    finding.effect = effect;
  } else {
    finding.change = fmt::format(
        "neither one of the loader's {} threads more nor one less helps: data.stage, fewer "
        "augmentations, or more cores",
        workers);
  }
  add(std::move(finding));
}

/// How much shorter a step is with that many threads.
Interval Examination::try_workers(std::size_t workers) {
  data::LoaderSpec spec = loading_;
  spec.workers = workers;
  data::Loader other(run_.data().training(), spec, run_.backend().device());
  const Arm is = as_is(), changed{.trainer = *trainer_, .loader = &other};
  turns_.block(changed);
  return turns_.compare({is}, {changed}, share_of_rest()).difference;
}

/// What one thread does for a row, by the clock, on this rank. The rows are those of a later epoch.
std::string Examination::describe_rows() const {
  constexpr std::size_t most = 64;
  const data::Sampler sampler(loading_.sampler);
  data::RowReader reader(run_.data().training(), loading_.augment);
  std::vector<std::uint8_t> image(reader.row_bytes());
  data::RowTimes times;
  reader.measure(&times);
  const std::size_t rows = std::min(most, sampler.batches() * loading_.sampler.global_batch);
  for (std::size_t i = 0; i < rows; ++i) {
    // Broken rows are the loader's to judge.
    try {
      reader.read(1, sampler.row(1, i), image);
    } catch (const data::BadRow&) {
      continue;
    }
  }
  const double us = 1e6 / static_cast<double>(rows);
  return fmt::format(
      "a row's reading takes {:.0f} us, decoding {:.0f}, cropping {:.0f}, effects {:.0f}",
      us * times.read_s, us * times.decode_s, us * times.shape_s, us * times.colour_s);
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
                          2 * found.difference.middle, found.a_ms),
      .cost = found.difference,
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
  const std::optional<Interval> gain = gain_by(*trainer_, spec, why);
  if (!gain) return not_measured(SlowReason::precision, what, why);
  add({.reason = SlowReason::precision,
       .what = what + " (speed only: the accuracy was not measured)",
       .cost = gain,
       .change = fmt::format("--precision {}", to_string(lower)),
       .effect = gain,
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
  const std::optional<Interval> gain = gain_by(*trainer_, spec, why);
  if (!gain) return not_measured(SlowReason::parallel_work, what, why);
  add({.reason = SlowReason::parallel_work,
       .what = what,
       .cost = gain,
       .change = has ? "--graph false" : "--graph true",
       .effect = gain});
}

void Examination::add_unmeasured() {
  not_measured(SlowReason::allocation, "one compute thread less",
               "a start has one number of threads: compare with another --threads");
  not_measured(SlowReason::monitoring, "validation and checkpoints",
               "lockstep doctor RUN reads them from a run's records");
}

}  // namespace lockstep::study
