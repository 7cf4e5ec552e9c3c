#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "app/cli/command_line.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/search/working.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/search/best.hpp"
#include "lockstep/study/search/search_folder.hpp"
#include "lockstep/study/search/show.hpp"
#include "lockstep/study/search/worker.hpp"

namespace lockstep::app {
namespace {

struct PlanOptions {
  RunOptions training;
  study::SearchSpec spec;
  std::string space, sampler = "sobol", mode = "async";
  std::size_t first_rung = 1, workers = 4, slots = 1;
};

struct Planned {
  std::string folder, space_text;
  study::SearchSpec spec;
  study::SearchSpace space;
  config::Config base;
};

Planned settle(const PlanOptions& options) {
  Planned plan{.folder = "",
               .space_text = read_text(options.space),
               .spec = options.spec,
               .space = {},
               .base = options.training.config()};
  plan.folder = plan.base.out;
  require(!plan.folder.empty(), "--out: name the search's folder");
  plan.space = study::read_space(plan.space_text, options.space);
  plan.spec.sampler = parse_choice<study::PointSampler>(options.sampler, "--sampler");
  plan.spec.mode = parse_choice<study::SearchMode>(options.mode, "--mode");
  plan.spec.epochs =
      study::rung_epochs(options.first_rung, options.spec.keep_one_of, plan.base.epochs);
  return plan;
}

/// Slurm refuses an array whose last index is MaxArraySize or more.
void check_array(std::size_t workers) {
  for (const std::string& line : answer_of("scontrol show config 2>/dev/null")) {
    if (!line.starts_with("MaxArraySize")) continue;
    const auto most = whole_number<std::uint64_t>(trimmed(line.substr(line.find('=') + 1)));
    require(!most || workers < *most,
            fmt::format("--workers {}: an array's last index here is {} at most (MaxArraySize)",
                        workers, *most - 1));
  }
}

/// Epochs of all trials, if each rung keeps its part.
std::uint64_t epochs_of(const study::SearchSpec& spec) {
  std::uint64_t epochs = 0, from = 0;
  std::size_t trials = spec.trials;
  for (const std::uint64_t to : spec.epochs) {
    epochs += trials * (to - from);
    from = to;
    trials = std::max<std::size_t>(1, trials / spec.keep_one_of);
  }
  return epochs;
}

std::string array_line(const PlanOptions& options, const Planned& plan) {
  const study::SearchSpec& spec = plan.spec;
  const std::size_t ranks = spec.ranks * options.slots;
  std::string line = fmt::format(
      "sbatch --array=1-{} --nodes={} --ntasks-per-node={} "
      "--cpus-per-task={}",
      options.workers, (ranks + spec.ranks_per_node - 1) / spec.ranks_per_node,
      std::min(ranks, spec.ranks_per_node), spec.cpus_per_rank);
  if (spec.gpus_per_node > 0) line += fmt::format(" --gpus-per-node={}", spec.gpus_per_node);
  return line +
         fmt::format(" jobs/search.sbatch {} --slots {}", shell_word(plan.folder), options.slots);
}

int write(const PlanOptions& options) {
  const Planned plan = settle(options);
  check_array(options.workers);
  const std::size_t refused =
      study::write_search(plan.folder, plan.spec, plan.space, plan.space_text, plan.base,
                          study::point_costs(own_program().string()));
  const std::uint64_t epochs = epochs_of(plan.spec);
  log::info(fmt::format(
      "{}: {} over {}, rungs at epochs {}", plan.folder, counted(plan.spec.trials, "trial"),
      counted(plan.space.dimensions.size(), "key"), join(plan.spec.epochs, ", ")));
  log::info(
      fmt::format("about {} of {} that all trials would take; the first results show how "
                  "long one takes",
                  counted(epochs, "epoch"), plan.spec.trials * plan.base.epochs));
  if (plan.space.budget.flops > 0 || plan.space.budget.latency_ms > 0)
    log::info(fmt::format("the budget refused {}, in whose place others were drawn",
                          counted(refused, "point")));
  log::info(array_line(options, plan));
  log::info(
      fmt::format("or without Slurm, as often as you like, wherever the folder is seen: "
                  "lockstep search run {}",
                  shell_word(plan.folder)));
  return status_done;
}

Command add_search_plan(Arguments search) {
  auto options = std::make_shared<PlanOptions>();
  Arguments app = search.add_command(
      "plan",
      "Write a search's folder, --out, with all trials. Takes all keys of a training, which are "
      "the base: trial 0. The schedule is that of all --epochs, however far a trial comes");
  study::SearchSpec& spec = options->spec;
  app.add("space", options->space, "a TOML file: what to try of which key").required();
  add_count(app, "--trials", spec.trials, {1, 100000}, "points, with the base");
  app.add("--sampler", options->sampler, "where the points are")
      .one_of(choice_names<study::PointSampler>())
      .shows_default();
  add_count(app, "--search-seed", spec.seed, {}, "of the points");
  add_count(app, "--first-rung", options->first_rung, {1, 1000000},
            "epochs before the first choice");
  add_count(app, "--keep-one-of", spec.keep_one_of, {2, 1000},
            "of a rung's trials as many continue, to as many times the epochs");
  app.add("--mode", options->mode,
          "async: trials continue as soon as they are among the best so far; sync: once a rung is "
          "complete, so any workers find the same")
      .one_of(choice_names<study::SearchMode>())
      .shows_default();
  app.add("--node-hours", spec.node_hours, "no training begins once these are used").within(0, 1e9);
  add_count(app, "--ranks", spec.ranks, {1, 1 << 20}, "of a trial");
  add_count(app, "--ranks-per-node", spec.ranks_per_node, {1, 100000}, "on full nodes");
  add_count(app, "--gpus-per-node", spec.gpus_per_node, {0, 1000}, "that trials may use");
  add_count(app, "--cpus-per-rank", spec.cpus_per_rank, {1, 10000}, "for srun");
  add_count(app, "--workers", options->workers, {1, 100000}, "tasks of the array that it prints");
  add_count(app, "--slots", options->slots, {1, 1000}, "trials next to each other in each");
  options->training.add_to(app);
  return {app, [options](Launch&) { return write(*options); },
          [options](const Supposed& supposed) {
            if (!supposed.shows(options->space)) return;
            const Planned plan = settle(*options);
            // Without costs: they need the data set, or a measurement.
            if (supposed.whole) study::check_search(plan.folder, plan.spec, plan.space, plan.base);
          }};
}

void add_folder(Arguments app, std::string& folder) {
  app.add("search", folder, "the folder that plan wrote").required();
}

void check_folder(const std::string& folder, const Supposed& supposed) {
  if (supposed.shows(folder)) study::SearchFolder{folder};
}

int run_worker(const std::string& path, const WorkingOptions& working) {
  study::SearchFolder folder(path);
  for (const auto& [file, why] : folder.bad_trials()) throw InputError(why);
  const auto legs = study::legs_of(folder);
  const study::WorkerOutcome outcome = work_as_asked(folder, *legs, working);
  for (const auto& [file, why] : folder.bad_trials()) throw InputError(why);
  constexpr std::size_t most_shown = 10;
  if (outcome.complete) log::text(study::search_text(folder, most_shown));
  return status_of(outcome);
}

Command add_search_run(Arguments search) {
  struct Options {
    std::string folder;
    WorkingOptions working;
  };
  auto options = std::make_shared<Options>();
  Arguments app = search.add_command(
      "run",
      "One worker: trains trials until none is left that others do not train. Start as many as you "
      "like, on any machines that see the folder");
  add_folder(app, options->folder);
  options->working.add_to(app);
  return {app, [options](Launch&) { return run_worker(options->folder, options->working); },
          [options](const Supposed& supposed) { check_folder(options->folder, supposed); }};
}

Command add_search_show(Arguments search) {
  struct Options {
    std::string folder, json, html;
  };
  auto options = std::make_shared<Options>();
  Arguments app = search.add_command("show", "What the trials have reached so far");
  add_folder(app, options->folder);
  add_json_file(app, options->json, "the same, with all legs and which keys matter");
  app.add("--html", options->html, "a page: curves, rungs, parallel coordinates, slices")
      .called("FILE");
  return {app,
          [options](Launch&) {
            for (const std::string& file : {options->json, options->html})
              if (!file.empty()) require_report_fits(file);
            const study::SearchFolder folder(options->folder);
            if (!options->json.empty())
              write_report(options->json, study::search_json(folder) + "\n");
            if (!options->html.empty()) write_report(options->html, study::search_page(folder));
            log::text(study::search_text(folder));
            return status_done;
          },
          [options](const Supposed& supposed) { check_folder(options->folder, supposed); }};
}

int answer_best(const std::string& path, std::size_t most, std::size_t repeats,
                const WorkingOptions& working) {
  study::SearchFolder folder(path);
  const std::vector<std::size_t> trials = study::repeated_trials(folder, most);
  const auto list = study::repeats_of(folder, trials, repeats);
  const study::WorkerOutcome outcome = work_as_asked(folder, *list, working);
  if (outcome.complete)
    log::text(study::best_text(folder, trials, repeats));
  else
    log::info("some repeats are not done; once they are, the same command names the best");
  return status_of(outcome);
}

Command add_search_best(Arguments search) {
  struct Options {
    std::string folder;
    std::size_t most = 3, repeats = 5;
    WorkingOptions working;
  };
  auto options = std::make_shared<Options>();
  Arguments app = search.add_command(
      "best",
      "Trains the best trials and the base again, whole and with other seeds, and names the best "
      "one or says that it cannot. A worker as run is: several may do it together");
  add_folder(app, options->folder);
  add_count(app, "--repeats", options->repeats, {2, 999}, "other seeds of each");
  add_count(app, "--of", options->most, {1, 1000}, "how many of the first trials");
  options->working.add_to(app);
  return {app,
          [options](Launch&) {
            return answer_best(options->folder, options->most, options->repeats, options->working);
          },
          [options](const Supposed& supposed) { check_folder(options->folder, supposed); }};
}

Command add_search_export(Arguments search) {
  struct Options {
    std::string folder, optuna, tensorboard;
  };
  auto options = std::make_shared<Options>();
  Arguments app = search.add_command("export", "The trials for other programs");
  add_folder(app, options->folder);
  app.add("--optuna", options->optuna, "a journal that Optuna 5 reads").called("FILE");
  app.add("--tensorboard", options->tensorboard,
          "a folder that TensorBoard reads: on its page HPARAMS each trial is a session")
      .called("FOLDER");
  return {app,
          [options](Launch&) {
            require(!options->optuna.empty() || !options->tensorboard.empty(),
                    "search export: name --optuna, --tensorboard or both");
            if (!options->optuna.empty()) require_report_fits(options->optuna);
            const study::SearchFolder folder(options->folder);
            if (!options->optuna.empty()) {
              write_report(options->optuna, study::optuna_journal(folder));
              log::info(options->optuna + " is written");
            }
            if (!options->tensorboard.empty())
              log::info(fmt::format(
                  "{}: {}", options->tensorboard,
                  counted(study::write_sessions(folder, options->tensorboard), "trial")));
            return status_done;
          },
          [options](const Supposed& supposed) { check_folder(options->folder, supposed); }};
}

}  // namespace

Command add_search(Arguments root) {
  Arguments app = root.add_command(
      "search",
      "A search among keys of a training: plan, run, show, best, export (jobs/SEARCH.md)");
  const std::vector<Command> steps = {add_search_plan(app), add_search_run(app),
                                      add_search_show(app), add_search_best(app),
                                      add_search_export(app)};
  return {app,
          [steps](Launch& launch) {
            if (const auto status = run_given(steps, launch)) return *status;
            throw InputError("search: name one of plan, run, show, best, export");
          },
          [steps](const Supposed& supposed) { check_given(steps, supposed); }};
}

}  // namespace lockstep::app
