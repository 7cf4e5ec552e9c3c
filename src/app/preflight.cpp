#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/check_nodes.hpp"
#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/train/decide/gpu_steps.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct PreflightOptions {
  RunOptions run;
  std::string profile, json, directory;
  bool layers = false;
};

/// The step that a training with these keys would make there.
backend::PreflightSpec spec_of(const PreflightOptions& options) {
  config::Config config = options.run.of_steps("nothing runs on a GPU that is not here");
  config::require_whole_replicas(config, "this is about a GPU's steps");
  config.backend = config::BackendChoice::cuda;
  config::resolve(config, 1);
  const data::DataSetInfo rows = train::synthetic_rows(config);
  const train::GpuSteps steps = train::choose_gpu_steps(
      train::gpu_steps_setting(config, infer::make_network(config, rows), 1, true));
  train::TrainerSpec spec = train::make_trainer_spec(steps.in(config), rows, 1, 0);
  spec.program.plan_cache.clear();  // it holds what was measured on a GPU
  return {spec.network, spec.program, backend::read_gpu_profile(options.profile)};
}

/// Of all steps.
backend::StepFloor sums_of(const backend::PreflightReport& report) {
  backend::StepFloor sums;
  for (const backend::StepFloor& step : report.steps) {
    sums.flops += step.flops;
    sums.bytes += step.bytes;
    sums.shortest_ms += step.shortest_ms;
  }
  return sums;
}

Json to_json(const backend::PreflightSpec& spec, const backend::PreflightReport& report) {
  Json convolutions = Json::array(), fusions = Json::array(), steps = Json::array();
  for (const backend::PreflightConv& conv : report.convolutions)
    convolutions.push_back({{"node", conv.node},
                            {"what", conv.what},
                            {"possible", conv.possible},
                            {conv.possible ? "engine" : "reason", conv.engine},
                            {"workspace_bytes", conv.workspace}});
  for (const backend::PreflightFusion& fusion : report.fusions)
    fusions.push_back(
        {{"node", fusion.node}, {"applies", fusion.applies}, {"sums_for", fusion.sums_for}});
  for (const backend::StepFloor& step : report.steps)
    steps.push_back({{"name", step.name},
                     {"flops", step.flops},
                     {"bytes", step.bytes},
                     {"shortest_ms", step.shortest_ms}});
  const backend::StepFloor sums = sums_of(report);
  const backend::PreflightMemory& memory = report.memory;
  return {{"gpu", spec.gpu.name},
          {"gpu_source", spec.gpu.source},
          {"model", spec.network.name},
          {"batch", spec.program.batch},
          {"precision", to_string(spec.program.precision)},
          {"possible", report.possible},
          {"convolutions", std::move(convolutions)},
          {"fusions", std::move(fusions)},
          {"memory",
           {{"parameters_bytes", memory.parameters},
            {"gradients_bytes", memory.gradients},
            {"input_bytes", memory.input},
            {"activations_bytes", memory.activations},
            {"activations_without_reuse_bytes", memory.without_reuse},
            {"workspace_bytes", memory.workspace},
            {"total_bytes", memory.total()},
            {"gpu_bytes", spec.gpu.memory}}},
          {"fits", report.fits},
          {"largest_batch", report.largest_batch},
          {"flops", sums.flops},
          {"bytes", sums.bytes},
          {"shortest_step_ms", sums.shortest_ms},
          {"steps", std::move(steps)}};
}

void print_convolutions(const backend::PreflightReport& report, bool all) {
  std::size_t possible = 0;
  for (const backend::PreflightConv& conv : report.convolutions) {
    possible += conv.possible ? 1 : 0;
    if (!conv.possible)
      log::info(fmt::format("  no engine: {}: {}", conv.node, conv.engine));
    else if (all)
      log::info(fmt::format("  {}: {}: engine {}, workspace {}", conv.node, conv.what, conv.engine,
                            human_bytes(static_cast<double>(conv.workspace))));
  }
  log::info(fmt::format("convolutions: {} of {} passes have an engine", possible,
                        report.convolutions.size()));
}

void print_fusions(const backend::PreflightReport& report, bool all) {
  if (report.fusions.empty()) return;
  std::size_t applied = 0, sums = 0;
  for (const backend::PreflightFusion& fusion : report.fusions) {
    applied += fusion.applies.empty() ? 0 : 1;
    sums += fusion.sums_for.empty() ? 0 : 1;
    if (all)
      log::info(fmt::format(
          "  {} {}, {}", fusion.node,
          fusion.applies.empty() ? "reads what is stored" : "applies " + fusion.applies,
          fusion.sums_for.empty() ? "makes no sums" : "makes the sums for " + fusion.sums_for));
  }
  log::info(
      fmt::format("batch norms: of {} convolutions {} make the sums for the norm after them, {} "
                  "apply the one before",
                  report.fusions.size(), sums, applied));
}

void print_memory(const backend::PreflightSpec& spec, const backend::PreflightReport& report) {
  const backend::PreflightMemory& memory = report.memory;
  const auto text = [](std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  log::info(fmt::format(
      "memory: weights and momentum {}, gradients {}, input {}, activations {} ({} without reuse), "
      "workspace {}: {} of {}",
      text(memory.parameters), text(memory.gradients), text(memory.input), text(memory.activations),
      text(memory.without_reuse), text(memory.workspace), text(memory.total()),
      human_bytes(spec.gpu.memory)));
  log::info(
      fmt::format("it {}; the largest micro-batch that fits, with fast plans, has about {} rows",
                  report.fits ? "fits" : "does not fit", report.largest_batch));
}

void print_steps(const backend::PreflightSpec& spec, const backend::PreflightReport& report,
                 bool layers) {
  if (layers)
    for (const backend::StepFloor& step : report.steps)
      log::info(fmt::format("{:10.3f} ms  {:9.2f} GFLOP  {:>9}  {}", step.shortest_ms,
                            step.flops / 1e9, human_bytes(step.bytes), step.name));
  const backend::StepFloor sums = sums_of(report);
  log::info(fmt::format("a step of {} rows: {:.1f} GFLOP, {} moved", spec.program.batch,
                        sums.flops / 1e9, human_bytes(sums.bytes)));
  if (!spec.gpu.rates)
    return log::info("the profile has no rates: the shortest possible step is not known");
  log::info(fmt::format("at the stated rates no step is shorter than {:.2f} ms: {:.0f} images/s",
                        sums.shortest_ms,
                        1e3 * static_cast<double>(spec.program.batch) / sums.shortest_ms));
}

int run_preflight(Launch& launch, const PreflightOptions& options) {
  if (launch.leave_to_rank_0()) return status_done;
  const backend::PreflightSpec spec = spec_of(options);
  const backend::PreflightReport report = backend::preflight(spec);
  log::info(fmt::format("{} in {}, {} rows a micro-batch, on {}{}", spec.network.name,
                        to_string(spec.program.precision), spec.program.batch, spec.gpu.name,
                        spec.gpu.source.empty() ? "" : fmt::format(" ({})", spec.gpu.source)));
  print_convolutions(report, options.layers);
  if (report.possible) {
    print_fusions(report, options.layers);
    print_memory(spec, report);
    print_steps(spec, report, options.layers);
  }
  if (!options.json.empty()) write_report(options.json, json_text(to_json(spec, report), 2) + "\n");
  return report.possible ? status_done : status_failed;
}

int run_between_nodes(Launch& launch, const PreflightOptions& options) {
  launch.start();
  const NodeCheck check = check_nodes(launch, {.directory = options.directory, .paths = {}});
  if (!options.json.empty() && launch.rank.rank == 0) write_report(options.json, check.json);
  return check.passed ? status_done : status_failed;
}

}  // namespace

Command add_preflight(Arguments root) {
  auto options = std::make_shared<PreflightOptions>();
  Arguments app =
      root.add_command("preflight",
                       "Started by srun or mpirun on several nodes: find nodes that are slow or "
                       "different. With --gpu-profile: predict what a GPU would do that is not in "
                       "this machine (engines, memory, shortest step), with the options of train");
  app.add("--gpu-profile", options->profile,
          "description of the GPU: jobs/gpus/h200.json, for example")
      .called("FILE");
  app.add("--directory", options->directory, "between nodes: where each writes a file of 16 MB")
      .called("FOLDER")
      .shows("here");
  app.add_flag("--layers", options->layers, "list every convolution and every step of the tape");
  add_json_file(app, options->json, "write all of it to this file");
  options->run.add_to(app);
  const auto check = [options](const Supposed&) {
    const bool of_a_gpu = options->layers || options->run.given();
    require(!of_a_gpu || !options->profile.empty(),
            "options of a training, and --layers, also need --gpu-profile FILE: without it "
            "preflight compares nodes");
  };
  return {app,
          [options, check](Launch& launch) {
            check({});
            return options->profile.empty() ? run_between_nodes(launch, *options)
                                            : run_preflight(launch, *options);
          },
          [check](const Supposed& supposed) {
            if (supposed.whole) check(supposed);
          }};
}

}  // namespace lockstep::app
