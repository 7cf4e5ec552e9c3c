#include <fmt/core.h>

#include <filesystem>

#include "app/cli/count_option.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/study/fit/fit.hpp"
#include "lockstep/study/plan/run_study.hpp"

namespace lockstep::app {
namespace {

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

int write(PlanOptions& options) {
  const config::Config training = options.training.config();
  study::PlanSpec& plan = options.plan;
  require(!training.out.empty(), "--out: name the study's folder");
  plan.batch = training.batch;
  plan.rows = training.batch_per_rank;
  plan.real = !training.data.train.empty() || !training.data.images.empty();
  plan.synthetic = !options.no_synthetic;
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

bool in_a_job() { return cluster::process_environment()("SLURM_JOB_ID").has_value(); }

study::StudyLauncher launcher_of(const std::string& name) {
  if (name == "srun") return study::StudyLauncher::srun;
  if (name == "mpirun") return study::StudyLauncher::mpirun;
  return in_a_job() ? study::StudyLauncher::srun : study::StudyLauncher::mpirun;
}

int run_steps(const std::string& folder, study::StudyRun spec, const std::string& launcher) {
  require(rank_by_environment().world <= 1,
          "scaling run starts ranks itself: start it once, without srun or mpirun");
  spec.launcher = launcher_of(launcher);
  spec.program = std::filesystem::read_symlink("/proc/self/exe").string();
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
  return {app, [options](Launch&) { return write(*options); }};
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
  return {app, [options](Launch&) {
            return run_steps(options->folder, options->spec, options->launcher);
          }};
}

}  // namespace lockstep::app
