#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/bench/bench_steps.hpp"
#include "app/commands.hpp"
#include "app/training/training_start.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/observe/trace/rank_trace.hpp"
#include "lockstep/study/fit/interval.hpp"
#include "lockstep/train/loop/ledger.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct TrainBenchOptions : StepOptions {
  bool reduction = false, layers = false, rules = false;
  std::string trace;
  bool times_tape() const { return layers || !trace.empty(); }
};

/// One of the trainings that run in turn: the one that is asked for, and those that it is compared
/// with.
struct TrainingArm {
  std::string name;
  std::unique_ptr<train::Trainer> trainer;
  StepSeries series = {};
};
constexpr const char* unreduced = "without reduction";

/// Adds one for each update rule but SGD.
void add_rules(StepBench& bench, std::vector<TrainingArm>& arms) {
  require(bench.config().optim.rule == optim::Rule::sgd,
          "--rules compares other rules with SGD: leave out optim.rule");
  const std::pair<const char*, optim::Formula> rules[] = {
      {"lars", optim::Lars{}}, {"lamb", optim::Lamb{}}, {"muon", optim::Muon{}}};
  train::TrainerSpec other = bench.run().trainer_spec();
  for (const auto& [name, formula] : rules) {
    other.formula = formula;
    arms.push_back(
        {name, std::make_unique<train::Trainer>(other, bench.run().backend(),
                                                bench.run().reducing(), &bench.run().pipeline())});
  }
}

struct TapeTimes {
  std::vector<std::string> names, engines;
  std::vector<std::vector<std::string>> final_tensors;  ///< whose gradients are final after it
  std::size_t forward_steps = 0;
  std::vector<double> medians_ms, last_ms;  ///< last_ms: of the last run alone
};

/// The time of each step of the tape, in order.
TapeTimes time_tape(const TrainBenchOptions& options, StepBench& bench, train::Trainer& trainer) {
  backend::Backend& backend = bench.run().backend();
  const auto program =
      backend.compile(trainer.network(), trainer.program_spec(), trainer.parameters());
  data::Batch rows = bench.data().batch;
  rows.rows = rows.capacity = trainer.program_spec().batch;  // of one micro-batch
  program->load(rows);
  backend::Tape tape = program->forward();
  tape.insert(tape.end(), program->backward(false).begin(), program->backward(false).end());
  std::vector<std::vector<double>> times_ms(tape.size());
  const std::unique_ptr<device::Timeline> timeline = backend.device().make_timeline();
  for (std::size_t i = 0; i < options.warm_up + options.steps; ++i) {
    timeline->mark();
    for (const backend::TapeStep& step : tape) {
      step.run();
      timeline->mark();
    }
    const std::vector<double> laps_ms = timeline->laps_ms();
    if (i < options.warm_up) continue;
    for (std::size_t step = 0; step < tape.size(); ++step) times_ms[step].push_back(laps_ms[step]);
  }
  TapeTimes times;
  times.forward_steps = program->forward().size();
  const std::vector<nn::Slice>& slices = trainer.parameters().layout().slices;
  for (std::size_t step = 0; step < tape.size(); ++step) {
    times.names.push_back(tape[step].name);
    times.engines.push_back(tape[step].engine);
    std::vector<std::string>& tensors = times.final_tensors.emplace_back();
    for (const std::size_t slice : tape[step].final_slices)
      tensors.push_back(slices.at(slice).tensor.name);
    times.medians_ms.push_back(upper_median(times_ms[step]));
    times.last_ms.push_back(times_ms[step].back());
  }
  return times;
}

/// Includes each step's floor, if the device's rates are known.
Json to_json(const TapeTimes& times, const std::optional<backend::Floor>& floor) {
  Json list = Json::array();
  for (std::size_t step = 0; step < times.names.size(); ++step) {
    Json entry = {{"name", times.names[step]}, {"ms", times.medians_ms[step]}};
    if (!times.engines[step].empty()) entry["engine"] = times.engines[step];
    entry["final"] = times.final_tensors[step];
    if (floor) {
      const backend::StepFloor& best = floor->steps.at(step);
      check(best.name == times.names[step],
            "the floors' steps differ from the tape's: " + best.name);
      entry.update({{"flops", best.flops}, {"bytes", best.bytes}, {"floor_ms", best.shortest_ms}});
    }
    list.push_back(std::move(entry));
  }
  return list;
}

/// Adds the floor of the whole step.
void add_floor(const backend::Floor& floor, Json& json) {
  double shortest_ms = 0;
  for (const backend::StepFloor& step : floor.steps) shortest_ms += step.shortest_ms;
  json["rates"] = Json::parse(fields_to_json(floor.rates));
  json["floor_ms"] = shortest_ms;
  json["floor_reached"] = shortest_ms / json["step_ms"].get<double>();
}

/// Adds how a GPU ran the steps, what is summed, and a rank's memory of a step, without the
/// parameters.
void add_training(const train::TrainerSpec& spec, const train::Trainer& trainer, Json& json) {
  json["graph"] = spec.graph;
  json["tune"] = !spec.program.plan_cache.empty();
  json["fuse_norms"] = spec.program.fuse_norms;
  const backend::MemoryPlan memory = trainer.memory();
  const std::vector<reduce::Bucket>& buckets = trainer.exchange().buckets();
  const nn::Shape& input = trainer.network().input;
  json["image"] = std::min(input.height, input.width);
  json["gradient_numbers"] = buckets.back().offset + buckets.back().size;
  json["buckets"] = buckets.size();
  json["activation_bytes"] = memory.activations;
  json["workspace_bytes"] = memory.workspace;
  json["made_again"] = memory.made_again;
}

/// What the measured steps took, with each source's figure, or why it has none.
void add_energy(const observe::LedgerRecord& used, Json& json) {
  const observe::WholeEnergy whole = observe::whole_energy(used);
  json["energy_joules"] = whole.joules ? Json(*whole.joules) : Json();
  json["energy_of"] = whole.of;
  json["energy_s"] = used.seconds;
  json["energy"] = Json::array();
  for (const observe::EnergyFigure& figure : used.energy)
    json["energy"].push_back(Json::parse(fields_to_json(figure)));
}

/// The steps of the tape, one after the other.
std::string tape_trace(const TapeTimes& times) {
  observe::ChromeTrace trace;
  double at_us = 0;
  for (std::size_t step = 0; step < times.names.size(); ++step) {
    const double end_us = at_us + times.last_ms[step] * 1e3;
    trace.span(0, 0, "tape", times.names[step], at_us, end_us, "");
    at_us = end_us;
  }
  return trace.take();
}

/// Of the keys that are not as usual, each in the form that --KEY takes.
Json keys_of(const config::Config& config) {
  Json keys = Json::object();
  for (const config::ConfigKey* key : config::changed_keys(config))
    keys[key->name] = key->get(config);
  return keys;
}

/// The medians of the first arm, and what the others take of each of its steps.
Json to_json(StepBench& bench, const std::vector<TrainingArm>& arms, double peak_bytes,
             double first_step_s) {
  const config::Config& config = bench.config();
  const StepSeries& series = arms.front().series;
  const observe::StepTimes parts = observe::medians_of(series.parts);
  Json json = described(config, bench.control().world(), bench.run().backend());
  add_speed(series.step, json);
  json.update({{"forward_ms", parts.forward_ms},
               {"backward_ms", parts.backward_ms},
               {"exposed_comm_ms", parts.exposed_comm_ms},
               {"update_ms", parts.update_ms},
               {"peak_memory_bytes", peak_bytes},
               {"first_step_s", first_step_s},
               {"loss", series.rows > 0 ? Json(series.loss / series.rows) : Json()},
               {"keys", keys_of(config)}});
  for (auto arm = arms.begin() + 1; arm != arms.end(); ++arm) {
    const std::vector<double>& other = arm->series.step;
    if (arm->name == unreduced) {
      json["step_without_reduction_ms"] = upper_median(other);
      json["reduction_ratio"] = upper_median(study::ratios_of(series.step, other));
    } else {
      json["rules"][arm->name] = {{"step_ms", upper_median(other)},
                                  {"update_ms", observe::medians_of(arm->series.parts).update_ms},
                                  {"ratio", upper_median(study::ratios_of(other, series.step))}};
    }
  }
  return json;
}

std::string line_of(const Json& step) {
  const double ms = step["ms"].get<double>();
  std::string line = fmt::format("{:10.3f} ms  ", ms);
  if (step.contains("floor_ms"))
    line +=
        fmt::format("{:8.3f} at best, {:3.0f} %  {:9.2f} GFLOP  {:>9}  ",
                    step["floor_ms"].get<double>(), 100 * step["floor_ms"].get<double>() / ms,
                    step["flops"].get<double>() / 1e9, human_bytes(step["bytes"].get<double>()));
  line += step["name"].get<std::string>();
  return step.contains("engine") ? line + ": " + step["engine"].get<std::string>() : line;
}

void report(const TrainBenchOptions& options, const Json& json) {
  const auto figure = [&](const char* name) { return json[name].get<double>(); };
  const auto precision = json["precision"].get<std::string>();
  log::info(fmt::format(
      "{}: {:.1f} images/s, step {:.1f} ms (forward {:.1f}, backward {:.1f}, exposed communication "
      "{:.1f}, update {:.1f}), peak memory {}",
      title_of(json), figure("images_per_s"), figure("step_ms"), figure("forward_ms"),
      figure("backward_ms"), figure("exposed_comm_ms"), figure("update_ms"),
      human_bytes(figure("peak_memory_bytes"))));
  if (options.reduction)
    log::info(fmt::format("without reduction {:.1f} ms: a step with it takes {:.3f} times that",
                          figure("step_without_reduction_ms"), figure("reduction_ratio")));
  if (options.rules)
    for (const auto& [name, one] : json["rules"].items())
      log::info(
          fmt::format("by {} a step takes {:.1f} ms, {:.3f} times SGD's, and its update {:.1f}",
                      name, one["step_ms"].get<double>(), one["ratio"].get<double>(),
                      one["update_ms"].get<double>()));
  if (options.layers)
    for (const Json& step : json["tape"]) log::info(line_of(step));
  if (json.contains("floor_ms"))
    log::info(
        fmt::format("at this device's measured rates, {}/s of its memory and {:.1f} TFLOP/s in {}, "
                    "a step would take {:.2f} ms: {:.0f} % of the measured time",
                    human_bytes(json["rates"]["bandwidth"].get<double>()),
                    json["rates"][precision].get<double>() / 1e12, precision, figure("floor_ms"),
                    100 * figure("floor_reached")));
  if (!options.json.empty()) write_report(options.json, json_text(json, 2) + "\n");
}

void measure_in_a_row(const TrainBenchOptions& options, StepBench& bench, train::Trainer& trainer,
                      std::size_t ahead, StepSeries& series) {
  constexpr std::size_t most = 64;  // read together
  while (series.step.size() < options.steps)
    bench.steps_in_a_row(trainer, ahead, std::min(most, options.steps - series.step.size()),
                         series);
}

/// What each step of the tape takes; also as a trace, on rank 0, if one is asked for.
void add_tape(const TrainBenchOptions& options, const TapeTimes& times, std::size_t rows,
              const std::optional<backend::Floor>& floor, bool is_root, Json& json) {
  json["forward_steps"] = times.forward_steps;
  json["tape_rows"] = rows;
  json["tape"] = to_json(times, floor);
  if (is_root && !options.trace.empty()) write_report(options.trace, tape_trace(times));
}

int run_bench(Launch& launch, const TrainBenchOptions& options) {
  double started_s = now_s();
  const config::Config asked = options.config();
  if (options.reduction || options.times_tape())
    config::require_whole_replicas(
        asked, "--reduction and the times of the tape are about all of a replica's steps");
  const TrainingStart start =
      start_training(launch, asked, options.run.recipe(), TrainedRows::synthetic);
  StepBench bench(start.spec, *start.compute.backend, *start.communicator, *launch.control);
  train::PreparedRun& run = bench.run();
  const train::TrainerSpec& spec = run.trainer_spec();
  // Before the training takes the memory; does not count as part of its start.
  const double asked_s = now_s();
  const auto floor =
      options.layers ? run.backend().floor(spec.network, spec.program) : std::nullopt;
  started_s += now_s() - asked_s;
  std::vector<TrainingArm> arms;
  arms.push_back(
      {"", std::make_unique<train::Trainer>(spec, run.backend(), run.reducing(), &run.pipeline())});
  train::Trainer& trainer = *arms.front().trainer;
  bench.step(trainer);
  const double first_step_s = now_s() - started_s;
  bench.steps(trainer, options.warm_up);
  // Here, because a training has no second trainer.
  const double peak = peak_memory(*launch.control);
  comm::SilentCommunicator silent(run.reducing().rank(), launch.rank.world,
                                  run.reducing().network(), run.reducing().activity);
  if (options.reduction)
    arms.push_back({unreduced, std::make_unique<train::Trainer>(spec, run.backend(), silent)});
  if (options.rules) add_rules(bench, arms);
  for (std::size_t i = 1; i < arms.size(); ++i) bench.steps(*arms[i].trainer, options.warm_up);
  StepSeries& with = arms.front().series;
  train::Ledger ledger(run.spec(), *launch.control);
  ledger.record(0, 0);  // of the start
  if (const std::size_t ahead = run.backend().device().steps_ahead(); ahead > 0 && arms.size() == 1)
    measure_in_a_row(options, bench, trainer, ahead, with);
  study::take_turns(
      arms.size(), [&](std::size_t) { return with.step.size() < options.steps; },
      [&](std::size_t i) { bench.step(*arms[i].trainer, &arms[i].series); });
  const observe::LedgerRecord used = ledger.record(0, with.step.size());
  Json json = to_json(bench, arms, peak, first_step_s);
  if (arms.size() == 1) add_energy(used, json);
  json["nodes"] = launch.nodes.count();
  add_training(spec, trainer, json);
  if (floor) add_floor(*floor, json);
  if (options.times_tape())
    add_tape(options, time_tape(options, bench, trainer), spec.program.batch, floor,
             launch.rank.rank == 0, json);
  if (launch.rank.rank == 0) report(options, json);
  return status_done;
}

}  // namespace

Command add_bench(Arguments root) {
  auto options = std::make_shared<TrainBenchOptions>();
  Arguments app = root.add_command("bench", "Measure this machine");
  app.require_command();
  Arguments train = app.add_command(
      "train", "Whole training steps on synthetic images, with the options of train");
  options->add_to(train);
  train.add_flag("--reduction", options->reduction,
                 "also run each step without reducing gradients, in turn, and compare");
  train.add_flag("--rules", options->rules,
                 "also run each step by the other update rules, in turn, and compare");
  train.add_flag("--layers", options->layers,
                 "also time each step of the tape, on a GPU with the shortest time that its "
                 "measured rates allow");
  train.add("--layers-trace", options->trace,
            "write the times of one forward and backward to this file, as a Chrome trace");
  const std::vector<Command> others = {add_bench_data(app), add_bench_binding(app),
                                       add_bench_comm(app), add_bench_inference(app)};
  return {app,
          [options, others](Launch& launch) {
            const auto other = run_given(others, launch);
            return other ? *other : run_bench(launch, *options);
          },
          [options, train, others](const Supposed& supposed) {
            train.given() ? options->check(supposed) : check_given(others, supposed);
          }};
}

}  // namespace lockstep::app
