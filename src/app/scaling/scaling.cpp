#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <type_traits>

#include "app/cli/command_line.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/study/fit/fit.hpp"
#include "lockstep/study/fit/points.hpp"
#include "lockstep/study/plan/run_study.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double most_efficient = 1.05;  // above it, it is not noise

/// Compares each run with the one with the fewest ranks.
Json compare(std::vector<study::Sample> runs) {
  std::ranges::stable_sort(runs, {}, &study::Sample::ranks);
  const study::Sample& least = runs.front();
  Json list = Json::array();
  for (const study::Sample& run : runs) {
    const double speedup = run.images_per_s() / least.images_per_s();
    const double ranks = static_cast<double>(run.ranks) / static_cast<double>(least.ranks);
    list.push_back({{"run", run.name},
                    {"ranks", run.ranks},
                    {"nodes", run.nodes},
                    {"batch", run.batch},
                    {"steps", run.steps},
                    {"step_ms", run.step_ms},
                    {"images_per_s", run.images_per_s()},
                    {"speedup", speedup},
                    {"efficiency", speedup / ranks},
                    {"exposed_comm_ms", run.mean_exposed_ms}});
  }
  return list;
}

/// What other work two runs did, so that their speeds compare more than their ranks. An older
/// program's records do not say everything.
std::string difference(const study::Sample& one, const study::Sample& other) {
  const auto differ = [](const auto& a, const auto& b) {
    const std::remove_cvref_t<decltype(a)> unknown{};
    return a != b && a != unknown && b != unknown;
  };
  if (differ(one.network, other.network)) return "networks";
  if (differ(one.precision, other.precision)) return "precisions";
  if (differ(one.image, other.image)) return "sizes of images";
  if (differ(one.gradient_numbers, other.gradient_numbers))
    return "numbers of learned weights (--freeze)";
  if (differ(one.machine, other.machine)) return "machines";
  return differ(one.micro_batches, other.micro_batches) ? "numbers of micro-batches" : "";
}

std::string points_as_text(const Json& points) {
  std::vector<std::vector<std::string>> rows{{"ranks", "nodes", "batch", "steps", "ms a step",
                                              "exposed comm.", "images/s", "speed-up",
                                              "efficiency"}};
  for (const Json& point : points)
    rows.push_back({point["ranks"].dump(), point["nodes"].dump(), point["batch"].dump(),
                    point["steps"].dump(), fmt::format("{:.1f}", point["step_ms"].get<double>()),
                    fmt::format("{:.1f}", point["exposed_comm_ms"].get<double>()),
                    fmt::format("{:.0f}", point["images_per_s"].get<double>()),
                    fmt::format("{:.2f}", point["speedup"].get<double>()),
                    fmt::format("{:.0f} %", 100 * point["efficiency"].get<double>())});
  return table(rows) +
         "speed-up and efficiency are relative to the run with the fewest ranks; ms a step is the "
         "median, without the first tenth";
}

/// Prints a table of runs, compared with the one on the fewest ranks.
int compare_runs(const std::vector<std::string>& runs, bool json) {
  std::vector<study::Sample> samples;
  for (const std::string& path : runs) samples.push_back(study::read_run(path));
  if (std::ranges::any_of(samples, [](const study::Sample& sample) {
        return backend::is_rehearsal(sample.machine);
      }))
    log::warn("a rehearsal (--backend clock) is among these runs: its steps computed nothing");
  for (const study::Sample& one : samples)
    if (const std::string what = difference(samples.front(), one); !what.empty())
      log::warn(
          fmt::format("{} and {} have other {}: their speed-up and efficiency compare more "
                      "than ranks",
                      samples.front().name, one.name, what));
  const Json compared = compare(std::move(samples));
  for (const Json& point : compared)
    if (point["efficiency"] > most_efficient)
      log::warn(
          fmt::format("{}: an efficiency of {:.0f} %: it has another batch a rank than the "
                      "run with the fewest ranks, or one of the two was disturbed",
                      point["run"].get<std::string>(), 100 * point["efficiency"].get<double>()));
  log::text(json ? json_text(compared, 2) : points_as_text(compared));
  return status_done;
}

struct PlanOptions {
  RunOptions training;
  study::PlanSpec plan;
  bool no_synthetic = false;
};

/// How long the study will take, where that is known before its first run.
std::string say_duration(const config::Config& training, const study::PlanSpec& plan,
                         const std::vector<study::Measurement>& steps) {
  const config::Config::Clock& clock = training.clock;
  if (training.backend != config::BackendChoice::clock || !clock.profile.empty())
    return "its first run shows how long it takes: scaling run then says how much is left";
  double step_ms = 0;
  for (const study::Measurement& step : steps)
    step_ms += clock.step_ms +
               clock.row_ms * static_cast<double>(step.batch) / static_cast<double>(step.ranks);
  const auto each = static_cast<double>(plan.steps + plan.warm_up);
  return fmt::format(
      "its steps will wait for {} together; {} of ranks come on top, often for longer",
      human_seconds(each * step_ms / 1e3), counted(steps.size(), "start"));
}

config::Config settle(PlanOptions& options) {
  config::Config training = options.training.config();
  study::PlanSpec& plan = options.plan;
  require(!training.out.empty(), "--out: name the study's folder");
  plan.batch = training.batch;
  plan.rows = training.batch_per_rank;
  plan.real = !training.data.train.empty() || !training.data.images.empty();
  plan.synthetic = !options.no_synthetic;
  if (!plan.ranks.empty()) config::require_shards(training, plan.ranks.back());
  return training;
}

void check_options(PlanOptions& options, const Supposed& supposed) {
  if (!supposed.whole) return (void)options.training.config();
  study::check_plan(settle(options).out, options.plan, options.training.config());
}

int write(PlanOptions& options) {
  const config::Config training = settle(options);
  const study::PlanSpec& plan = options.plan;
  study::write_plan(training.out, plan, training);
  const std::vector<study::Measurement> steps = study::measurements_of(plan);
  const std::size_t sizes = study::configurations(steps);
  log::info(fmt::format("{}: {} runs of {} steps, {} configurations of ranks and batch",
                        training.out, steps.size(), plan.steps, sizes));
  log::info(fmt::format("sbatch {}/study.sbatch, or without Slurm: lockstep scaling run {}",
                        training.out, training.out));
  log::info(say_duration(training, plan, steps));
  if (sizes < study::fewest_points)
    log::warn(
        fmt::format("{} configurations are too few for a law, which needs {}: add numbers of "
                    "ranks, or --batch-per-rank",
                    sizes, study::fewest_points));
  return status_done;
}

int run_steps(const std::string& folder, study::StudyRun spec, const std::string& launcher) {
  require_no_ranks("scaling run");
  spec.launcher = study::launcher_of(launcher, cluster::process_environment());
  spec.program = own_program().string();
  const study::StudyOutcome report = study::run_study(folder, spec);
  log::info(fmt::format("{} done, {} done before, {} failed, {} still missing",
                        counted(report.done, "run"), report.earlier, report.failed.size(),
                        report.missing));
  const int answered = report.missing == 0 ? report_study(folder) : status_done;
  for (const std::string& one : report.failed) log::error(one);
  return report.failed.empty() ? answered : status_failed;
}

}  // namespace

Command add_scaling_plan(Arguments scaling) {
  auto options = std::make_shared<PlanOptions>();
  Arguments app = scaling.add_command(
      "plan",
      "Write a study's folder, --out, with its batch script. Takes all keys of a training: --batch "
      "gives strong scaling, --batch-per-rank weak scaling, --data.train also measures with data");
  study::PlanSpec& plan = options->plan;
  app.add_taken(
         "--ranks", [&plan](const std::string& list) { plan.ranks = counts_of(list, "--ranks"); },
         "numbers of ranks, the fewest first")
      .called("N,N,...")
      .required();
  add_count(app, "--ranks-per-node", plan.ranks_per_node, {1, 100000}, "on full nodes");
  add_count(app, "--repetitions", plan.repetitions, {1, 1000}, "runs of each configuration");
  add_count(app, "--steps", plan.steps, {2, 1000000}, "measured steps of a run");
  add_count(app, "--warm-up", plan.warm_up, {1, 100000}, "steps before those");
  app.add_flag("--no-synthetic", options->no_synthetic, "measure only with data");
  add_count(app, "--gpus-per-node", plan.gpus_per_node, {0, 1000}, "for the batch script");
  add_count(app, "--cpus-per-rank", plan.cpus_per_rank, {1, 10000}, "for the batch script");
  app.add("--time", plan.time, "the job's limit").shows_default();
  app.add_flag("--array", plan.array,
               "a job array with a task for each number of ranks, instead of one allocation");
  options->training.add_to(app);
  return {app, [options](Launch&) { return write(*options); },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

Command add_scaling_run(Arguments scaling) {
  struct Options {
    std::string folder, launcher = "auto";
    study::StudyRun spec;
  };
  auto options = std::make_shared<Options>();
  Arguments app = scaling.add_command(
      "run", "Do a study's runs, or those that are missing, and report when all are done");
  app.add("study", options->folder, "the folder that plan wrote").required();
  add_count(app, "--only-ranks", options->spec.ranks, {1, 1 << 24}, "only runs on that many ranks");
  app.add("--launcher", options->launcher, "auto: srun in a Slurm job, otherwise mpirun")
      .one_of({"auto", "srun", "mpirun"})
      .shows_default();
  return {
      app,
      [options](Launch&) { return run_steps(options->folder, options->spec, options->launcher); },
      [options](const Supposed& supposed) {
        if (supposed.shows(options->folder)) study::read_plan(options->folder);
      }};
}

Command add_scaling(Arguments root) {
  struct Options {
    std::vector<std::string> runs;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "scaling",
      "Scaling studies: plan, run, fit, predict, report (jobs/SCALING.md). With runs' folders: "
      "compare their speed");
  app.add("runs", options->runs, "two or more runs' folders to compare");
  app.add_flag("--json", options->json, "print JSON");
  const std::vector<Command> steps = {add_scaling_plan(app), add_scaling_run(app),
                                      add_scaling_fit(app), add_scaling_predict(app),
                                      add_scaling_report(app)};
  return {app,
          [options, steps](Launch& launch) {
            if (const auto status = run_given(steps, launch)) return *status;
            require(!options->runs.empty(),
                    "scaling: name runs to compare, or one of plan, run, fit, predict, report");
            return compare_runs(options->runs, options->json);
          },
          [options, steps](const Supposed& supposed) {
            check_given(steps, supposed);
            for (const std::string& run : options->runs)
              if (supposed.shows(run)) study::read_run(run);
          }};
}

}  // namespace lockstep::app
