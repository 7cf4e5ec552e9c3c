// lockstep plan: how to share a training over ranks. The answer is at most ten lines, and the first
// one is a command to run.
#include <algorithm>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/scaling/simulation.hpp"
#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/study/parts/parts.hpp"
#include "lockstep/train/decide/other_memory.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;
using study::Parts;
using study::PlannedParts;

struct PlanOptions {
  SimulateOptions simulated;
  std::size_t ranks = 0;
  std::string gpu_profile, json;
};

/// What the answer says of itself, and the question does not.
const std::set<std::string> answered = {"accumulate", "recompute", "stages", "tiles", "pipeline"};

/// What the command line says of the answer.
study::FixedParts fixed_by(const RunOptions& line, const config::Config& training) {
  study::FixedParts fixed;
  if (line.given("stages")) fixed.stages = training.stages;
  if (line.given("tiles")) fixed.tiles = training.tiles;
  if (line.given("accumulate")) fixed.micro_batches = training.accumulate;
  if (line.given("pipeline")) fixed.order = training.pipeline;
  const bool open = training.recompute.mode == backend::Recompute::Mode::automatic;
  if (line.given("recompute") && !open) fixed.recompute = training.recompute;
  return fixed;
}

/// A process with its libraries, MPI among them, and their code for ResNets: 40 to 46 MiB were seen
/// next to what the plan counts.
constexpr std::size_t process_bytes = std::size_t{44} << 20;

/// A training, the machine, and what a rank of it has.
struct Question {
  explicit Question(const PlanOptions& options)
      : all(options.simulated),
        on_gpus(!options.gpu_profile.empty()),
        known_pace(!options.simulated.machine.empty() || !options.simulated.tape.empty()) {
    config = all.training;
    memory_limit = config.memory_limit;
    config.stages = config.tiles = config.accumulate = 1;
    config.pipeline = config::Config{}.pipeline;
    config.memory_limit = 0;
    config.recompute = {};
    if (on_gpus) {
      gpu = backend::read_gpu_profile(options.gpu_profile);
      config.backend = config::BackendChoice::cuda;
      if (memory_limit == 0) memory_limit = static_cast<std::size_t>(gpu.memory);
    } else {
      config.backend = config::BackendChoice::cpu;
    }
    require(memory_limit > 0,
            "what may a rank take? --memory-limit 16GB says so, or --gpu-profile for a GPU");
    config::resolve(config, static_cast<int>(options.ranks));
    spec.ranks = options.ranks;
    spec.per_node = std::min(all.per_node, options.ranks);
    if (config.threads == 0)
      config.threads = std::max<std::size_t>(
          1, std::thread::hardware_concurrency() / std::max<std::size_t>(1, spec.per_node));
    fill(options);
  }

  void fill(const PlanOptions& options);
  std::size_t other_bytes(const Parts& parts, std::size_t stage) const;
  backend::PlannedMemory memory_on_gpu(const nn::Network& network,
                                       const backend::ProgramSpec& program) const;

  Simulation all;
  config::Config config;
  bool on_gpus, known_pace;
  std::size_t memory_limit = 0;
  backend::GpuProfile gpu;
  data::DataSetInfo rows;
  train::TrainerSpec trainer;
  std::unique_ptr<backend::Backend> backend;  ///< null: a GPU's
  study::PartsSpec spec;
};

void Question::fill(const PlanOptions& options) {
  rows = rows_of_training(config);
  trainer = train::make_trainer_spec(config, rows, static_cast<int>(options.ranks));
  spec.network = trainer.network;
  spec.program = trainer.program;
  spec.program.lanes = config.threads;
  spec.batch = config.batch;
  spec.fixed = fixed_by(options.simulated.run, all.training);
  spec.passes_values = !on_gpus;
  spec.bucket_bytes = static_cast<std::size_t>(
      1e6 * (config.comm.bucket_mb > 0     ? config.comm.bucket_mb
             : spec.ranks <= spec.per_node ? 1
                                           : static_cast<float>(all.bucket_mb)));
  spec.memory_limit = memory_limit;
  spec.pace = all.pace;
  spec.links = all.machine.network;
  spec.sum = [this](const study::Layout& layout, double bytes) {
    return all.sum_cost(layout, bytes);
  };
  if (on_gpus) {
    spec.memory = [this](const nn::Network& network, const backend::ProgramSpec& program) {
      return memory_on_gpu(network, program);
    };
    spec.other_bytes = [](const Parts&, std::size_t) { return std::size_t{0}; };
    return;
  }
  backend = backend::make_cpu_backend({});
  spec.memory = [this](const nn::Network& network, const backend::ProgramSpec& program) {
    return backend->plan(network, program);
  };
  spec.other_bytes = [this](const Parts& parts, std::size_t stage) {
    return other_bytes(parts, stage);
  };
}

std::size_t Question::other_bytes(const Parts& parts, std::size_t stage) const {
  const std::size_t own_rows = even_share(config.batch, parts.replicas, 0);
  const bool trains = !config.data.train.empty();
  const std::size_t images = trains ? config.data.slots * own_rows : own_rows;
  const std::size_t weights = nn::numbers(spec.network) * sizeof(float) / parts.stages;
  return process_bytes +
         train::bytes_next_to_steps({.loader_bytes = stage == 0 ? images * rows.row_bytes() : 0,
                                     .average = trainer.average.kept(),
                                     .second_moments = optim::has_second_moments(trainer.formula),
                                     .update_bytes = trainer.program.update_bytes,
                                     .exchange_bytes = trainer.program.exchange_bytes,
                                     .checkpoints = trains},
                                    weights, spec.ranks == 1);
}

backend::PlannedMemory Question::memory_on_gpu(const nn::Network& network,
                                               const backend::ProgramSpec& program) const {
  const backend::PreflightReport report = backend::preflight(
      {.network = network, .program = program, .gpu = gpu, .search_batch = false});
  require(report.possible, "a convolution has no engine on this GPU: lockstep preflight names it");
  const backend::PreflightMemory& memory = report.memory;
  return {memory.parameters + memory.gradients + memory.input,
          {.activations = memory.activations, .workspace = memory.workspace}};
}

std::string bytes_text(std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); }

/// "2 stages (1f1b) x 2 tiles, 8 micro-batches of 4 rows"
std::string describe(const Question& question, const Parts& parts) {
  std::vector<std::string> words;
  if (parts.replicas > 1 || parts.ranks() == 1) words.push_back(counted(parts.replicas, "replica"));
  if (parts.stages > 1)
    words.push_back(fmt::format("{} stages ({})", parts.stages, choice_name(parts.order)));
  if (parts.tiles > 1) words.push_back(counted(parts.tiles, "tile"));
  return fmt::format("{}, {} of {}{}", join(words, " x "),
                     counted(parts.micro_batches, "micro-batch"),
                     counted(study::rows_of(question.spec, parts), "row"),
                     parts.again ? ", values made again" : "");
}

/// The share of all ranks' time that one rank alone would need for the work.
double busy_share(const PlannedParts& way) { return way.step.compute_ms / way.step.step_ms; }

std::string time_text(const Question& question, const PlannedParts& way) {
  std::string busy = fmt::format("{:.0f} % of it work", 100 * busy_share(way));
  if (!question.known_pace) return busy;
  return fmt::format("{:.{}f} ms a step, {:.1f} images/s, {}", way.step.step_ms,
                     way.step.step_ms < 100 ? 2 : 0,
                     1e3 * static_cast<double>(question.spec.batch) / way.step.step_ms, busy);
}

std::string memory_text(const PlannedParts& way) {
  return fmt::format("{} in {}", bytes_text(way.memory.bytes),
                     way.parts.stages > 1 ? fmt::format("stage {}", way.memory.stage + 1)
                                          : std::string("each rank"));
}

/// What starts it; without data a benchmark of its steps.
std::string command_of(const Question& question, const Parts& parts, const std::string& program) {
  std::vector<std::string> words;
  if (question.spec.ranks > 1) words = {"mpirun", "-np", std::to_string(question.spec.ranks)};
  words.push_back(shell_word(program));
  if (question.config.data.train.empty()) words.push_back("bench");
  words.push_back("train");
  config::Config chosen = question.all.training;
  chosen.batch = question.config.batch;
  chosen.batch_per_rank = 0;
  chosen.accumulate = parts.micro_batches;
  chosen.stages = parts.stages;
  chosen.tiles = parts.tiles;
  chosen.pipeline = parts.order;
  const bool open = !question.spec.fixed.recompute;
  chosen.memory_limit = open && parts.again ? question.memory_limit : 0;
  chosen.recompute = question.spec.fixed.recompute.value_or(backend::Recompute{});
  if (open && parts.again) chosen.recompute.mode = backend::Recompute::Mode::automatic;
  if (!question.on_gpus) chosen.threads = question.config.threads;
  for (const config::ConfigKey* key : config::changed_keys(chosen)) {
    words.push_back("--" + key->name);
    words.push_back(shell_word(key->get(chosen)));
  }
  return join(words, " ");
}

Json to_json(const Question& question, const PlannedParts& way) {
  const Parts& parts = way.parts;
  return {{"replicas", parts.replicas},
          {"stages", parts.stages},
          {"tiles", parts.tiles},
          {"accumulate", parts.micro_batches},
          {"rows", study::rows_of(question.spec, parts)},
          {"pipeline", choice_name(parts.order)},
          {"made_again", way.memory.made_again},
          {"step_ms", way.step.step_ms},
          {"busy", busy_share(way)},
          {"gathers_ms", way.step.gathers_ms},
          {"halos_ms", way.step.halos_ms},
          {"memory_bytes", way.memory.bytes},
          {"largest_stage", way.memory.stage}};
}

/// What the figures leave out.
std::string unknown_of(const Question& question) {
  std::vector<std::string> words;
  if (!question.known_pace)
    words.push_back(
        "without --machine or --tape, work is counted in operations, and messages take "
        "no time");
  else if (question.all.machine.name.empty())
    words.push_back("without --machine, messages take no time");
  if (question.on_gpus)
    words.push_back("memory is what cuDNN asks for: not what CUDA's context and NCCL take");
  else
    words.push_back(fmt::format("{} a rank", counted(question.config.threads, "thread")));
  return join(words, "; ");
}

std::vector<std::string> lines_of(const Question& question, const study::PartsAnswer& answer,
                                  const std::string& program) {
  std::vector<std::string> lines;
  const std::string limit = bytes_text(question.memory_limit);
  if (answer.fitting.empty()) {
    const PlannedParts& least = answer.smallest.value();
    lines.push_back(fmt::format("nothing fits into {}: the least is {} bytes, {}", limit,
                                least.memory.bytes, describe(question, least.parts)));
  }
  for (const PlannedParts& way : answer.fitting) {
    if (lines.empty()) lines.push_back(command_of(question, way.parts, program));
    lines.push_back(fmt::format("{}{}: {}; {}",
                                lines.size() == 1 ? "" : "slower: ", describe(question, way.parts),
                                time_text(question, way), memory_text(way)));
  }
  if (answer.too_large) {
    const PlannedParts& way = *answer.too_large;
    lines.push_back(fmt::format("does not fit: {}: {}; {}, {} more than {}",
                                describe(question, way.parts), time_text(question, way),
                                memory_text(way),
                                bytes_text(way.memory.bytes - question.memory_limit), limit));
  }
  if (answer.without_stages)
    lines.push_back(fmt::format(
        "one rank for each replica with as many micro-batches and --recompute takes less memory "
        "than these stages: {}",
        bytes_text(answer.without_stages->memory.bytes)));
  lines.push_back(unknown_of(question));
  return lines;
}

int run(Launch& launch, const PlanOptions& options) {
  if (launch.leave_to_rank_0()) return status_done;
  const Question question(options);
  const study::PartsAnswer answer = study::plan_parts(question.spec);
  log::text(join(lines_of(question, answer, launch.argv[0]), "\n"));
  if (!options.json.empty()) {
    Json json{{"memory_limit", question.memory_limit}, {"ways", Json::array()}};
    for (const PlannedParts& way : answer.fitting) json["ways"].push_back(to_json(question, way));
    if (answer.too_large) json["too_large"] = to_json(question, *answer.too_large);
    if (answer.smallest) json["smallest"] = to_json(question, *answer.smallest);
    write_report(options.json, json_text(json, 1) + "\n");
  }
  return answer.fitting.empty() ? status_bad_input : status_done;
}

}  // namespace

Command add_plan(Arguments root) {
  auto options = std::make_shared<PlanOptions>();
  options->simulated.answered = answered;
  Arguments app = root.add_command(
      "plan",
      "Say how to share a training over ranks (replicas, stages, tiles, micro-batches, values made "
      "again) so that it fits into --memory-limit and is fast. Takes all keys of a training");
  add_count(app, "--ranks", options->ranks, {1, 1 << 20}, "of the training").required();
  app.add("--gpu-profile", options->gpu_profile,
          "ranks have a GPU each: its description, jobs/gpus/h200.json, for example")
      .called("FILE");
  add_machine_options(app, options->simulated);
  add_json_file(app, options->json, "write the ways that fit, and their figures, to this file");
  options->simulated.run.add_to(app);
  return {app, [options](Launch& launch) { return run(launch, *options); },
          [options](const Supposed&) { (void)options->simulated.run.config(); }};
}

}  // namespace lockstep::app
