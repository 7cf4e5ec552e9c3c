#include "lockstep/study/plan/run_study.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/work_folder.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/study/fit/points.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

fs::path result_of(const fs::path& folder, const Measurement& step) {
  return folder / "points" / (step.name() + (step.synthetic ? ".json" : ""));
}

/// Empty: the result is complete. Otherwise what is wrong with it.
std::string incomplete(const fs::path& result, const PlanSpec& plan, const Measurement& step) {
  try {
    const Sample sample = step.synthetic ? read_bench(result) : read_run(result);
    if (sample.ranks != step.ranks || sample.batch != step.batch)
      return fmt::format("has {} and batch {}", counted(sample.ranks, "rank"), sample.batch);
    // A run's sample is without its warm-up.
    if (sample.steps < plan.steps * 3 / 4) return fmt::format("has only {} steps", sample.steps);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// What processes that were killed, or overtaken, have begun of a step.
void remove_parts(const fs::path& folder, const Measurement& step) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "points", none))
    if (entry.path().extension() == ".part" &&
        entry.path().filename().string().starts_with(step.name() + "."))
      fs::remove_all(entry.path(), none);
}

/// Empty: done. Otherwise why not.
std::string do_step(const fs::path& folder, const PlanSpec& plan, const Measurement& step,
                    const StudyRun& spec) {
  const fs::path result = result_of(folder, step), log = folder / "logs" / (step.name() + ".log");
  const fs::path part =
      folder / "points" / fmt::format("{}.{}-{}.part", step.name(), host_name(), ::getpid());
  remove_parts(folder, step);
  std::vector<std::string> words =
      launch_words(spec.launcher, step.ranks, plan.ranks_per_node, plan.cpus_per_rank);
  words.push_back(spec.program);
  for (std::string& word : command_of(folder, plan, step, part.string()))
    words.push_back(std::move(word));
  const int status = wait_for_child(start_child({.words = words, .log = log})).value();
  if (fs::exists(result)) return "";  // by a process that took the step over
  if (!fs::exists(part))
    return fmt::format("ended with status {}: {} ({})", status, last_line(log), log.string());
  if (const std::string wrong = incomplete(part, plan, step); !wrong.empty())
    return fmt::format("ended with status {}: {} ({})", status, wrong, log.string());
  if (!step.synthetic) fs::remove_all(part / "checkpoints");  // of no use, and large
  fs::rename(part, result);
  return "";
}

}  // namespace

StudyLauncher launcher_of(const std::string& name, const cluster::EnvLookup& env) {
  const bool srun = name == "srun" || (name == "auto" && env("SLURM_JOB_ID").has_value());
  return srun ? StudyLauncher::srun : StudyLauncher::mpirun;
}

std::vector<std::string> launch_words(StudyLauncher launcher, std::size_t ranks,
                                      std::size_t ranks_per_node, std::size_t cpus_per_rank) {
  if (launcher == StudyLauncher::mpirun)
    return {"mpirun", "--bind-to", "none", "--oversubscribe", "-np", std::to_string(ranks)};
  const std::size_t each = std::min(ranks, ranks_per_node);
  return {"srun",
          "--mpi=pmix",
          "--kill-on-bad-exit=1",
          fmt::format("--cpus-per-task={}", cpus_per_rank),
          fmt::format("--nodes={}", (ranks + each - 1) / each),
          fmt::format("--ntasks={}", ranks),
          fmt::format("--ntasks-per-node={}", each)};
}

std::string last_line(const fs::path& log) {
  std::string text = read_text(log), last;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const bool says_something = line.find_first_not_of("- ") != std::string::npos;
    if (line.find("error") != std::string::npos || (last.empty() && says_something)) last = line;
    at = end + 1;
  }
  return last;
}

std::vector<std::string> command_of(const fs::path& folder, const PlanSpec& plan,
                                    const Measurement& step, const std::string& result) {
  const std::string toml = (folder / "train.toml").string();
  const config::Config training = config::config_in(read_text(toml), toml);
  std::vector<std::string> words{"train", "--config", toml};
  for (const auto& [key, value] : step.keys(plan, training))
    words.insert(words.end(), {"--" + key, value});
  if (!step.synthetic) {
    words.insert(words.end(), {"--out", result});
    return words;
  }
  words.insert(words.begin(), "bench");
  words.insert(words.end(), {"--steps", std::to_string(plan.steps), "--warm-up",
                             std::to_string(plan.warm_up), "--json", result});
  return words;
}

StudyOutcome run_study(const fs::path& folder, const StudyRun& spec) {
  const PlanSpec plan = read_plan(folder);
  const std::vector<Measurement> steps = measurements_of(plan);
  require(
      spec.ranks == 0 || std::ranges::find(plan.ranks, spec.ranks) != plan.ranks.end(),
      fmt::format("--only-ranks {}: the study is on {} ranks", spec.ranks, join(plan.ranks, ", ")));
  make_directories(folder / "points");
  make_directories(folder / "logs");
  StudyOutcome report;
  std::vector<bool> tried(steps.size(), false);
  const auto is_wanted = [&](const Measurement& step) {
    return spec.ranks == 0 || step.ranks == spec.ranks;
  };
  const auto is_done = [&](const Measurement& step) { return fs::exists(result_of(folder, step)); };
  const auto left = [&] {
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (!tried[i] && is_wanted(steps[i]) && !is_done(steps[i])) due.push_back(i);
    return due;
  };
  report.earlier =
      static_cast<std::size_t>(std::ranges::count_if(steps, is_wanted)) - left().size();
  const fs::path claims = folder / "claims";
  double spent_s = 0;
  const auto do_one = [&](std::size_t i) {
    const double began_s = now_s();
    const std::string wrong = do_step(folder, plan, steps[i], spec);
    tried[i] = true;
    if (wrong.empty())
      ++report.done;
    else
      report.failed.push_back(steps[i].name() + " " + wrong);
    spent_s += now_s() - began_s;
    const double each_s = spent_s / static_cast<double>(report.done + report.failed.size());
    log::info(fmt::format("{}/{} {}: {} ({}); about {} left", i + 1, steps.size(), steps[i].name(),
                          wrong.empty() ? "done" : wrong, human_seconds(now_s() - began_s),
                          human_seconds(static_cast<double>(left().size()) * each_s)));
  };
  if (!left().empty()) WorkFolder({.claims = claims}).do_all(left, do_one);
  report.missing = steps.size() - static_cast<std::size_t>(std::ranges::count_if(steps, is_done));
  if (report.missing == 0) fs::remove_all(claims);
  return report;
}

}  // namespace lockstep::study
