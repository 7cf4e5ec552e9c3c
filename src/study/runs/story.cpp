#include "study/runs/story.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <set>
#include <variant>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/cluster/energy/energy_meter.hpp"
#include "lockstep/study/runs/run_report.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

using observe::RanksRecord;

/// The mean of two records over their steps; the newer one where the number of ranks has changed.
RanksRecord joined(const RanksRecord& before, RanksRecord now) {
  const std::uint64_t steps = before.steps + now.steps;
  if (steps == 0) return now;
  for (const auto& one : observe::step_parts) {
    const std::vector<double>& old = (before.*one.ranks).ranks;
    std::vector<double> ranks = (now.*one.ranks).ranks;
    if (old.size() != ranks.size()) return now;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank] = (old[rank] * static_cast<double>(before.steps) +
                     ranks[rank] * static_cast<double>(now.steps)) /
                    static_cast<double>(steps);
    now.*one.ranks = observe::spread(std::move(ranks));
  }
  now.steps = steps;
  return now;
}

/// The time of the newest start that no record has.
void add_rest_of_start(RunStory& story) {
  if (story.starts.empty() || story.starts.back().start.cores == 0) return;
  const Beginning& one = story.starts.back();
  const double rest_s = one.seconds() - one.ledger_s;
  constexpr double telling_s = 0.5;  // an end comes a moment after its ledger
  if (rest_s < telling_s) return;
  observe::LedgerRecord rest{.epoch = 0,
                             .step = story.steps,
                             .seconds = rest_s,
                             .cores = one.start.cores,
                             .gpus = one.start.gpus,
                             .machines = 1,
                             .cost = std::nullopt,
                             .energy = {}};
  if (!story.ledger.empty()) {
    rest.machines = story.ledger.back().machines;
    rest.energy = story.ledger.back().energy;
  }
  for (observe::EnergyFigure& figure : rest.energy) {
    figure = {.source = figure.source, .counts = figure.counts};
    figure.machines = rest.machines;
    figure.why = "the last part of a start is not in its records";
  }
  story.ledger.push_back(std::move(rest));
}

struct StoryTaker {
  RunStory& story;

  void operator()(const observe::StartRecord& start) const {
    add_rest_of_start(story);
    story.starts.push_back({start, std::nullopt, start.time_ms});
    story.measured = {};
    story.rows = 0;
    story.ranks.reset();
    story.steps = std::max(story.steps, start.from_step);
  }
  void operator()(const observe::ResumeRecord& resume) const { story.resumes.push_back(resume); }
  void operator()(const observe::StepRecord& step) const {
    story.steps = step.step;
    story.loss.add(step.step, step.loss);
    if (step.scores.empty()) story.top1.add(step.step, step.top1);
    story.step_ms.add(step.step, step.times.total_ms());
    story.phases.add(step.step, step.times);
    story.measured.add(step.step, step.times);
    story.rows += step.rows;
    if (step.loss_scale) story.skipped_steps = step.loss_scale->skipped_steps;
  }
  void operator()(const observe::EpochRecord& epoch) const {
    story.epochs.push_back(epoch);
    story.bad_rows.insert(story.bad_rows.end(), epoch.bad_rows.begin(), epoch.bad_rows.end());
  }
  void operator()(const RanksRecord& ranks) const {
    story.ranks = story.ranks ? joined(*story.ranks, ranks) : ranks;
  }
  void operator()(const observe::CheckpointRecord& one) const { story.checkpoints.push_back(one); }
  void operator()(const observe::LedgerRecord& one) const {
    story.ledger.push_back(one);
    if (!story.starts.empty()) story.starts.back().ledger_s += one.seconds;
  }
  void operator()(const observe::EndRecord& end) const {
    if (!story.starts.empty()) story.starts.back().end = end;
  }
};

void read_metrics(const fs::path& path, RunStory& story) {
  if (!fs::exists(path)) {
    story.notes.push_back("metrics.jsonl is missing: no curve and no time is known");
    return;
  }
  bool any = false;
  const observe::StrangeLines strange =
      observe::read_records(path, [&](const observe::Record& record) {
        any = true;
        std::visit(StoryTaker{story}, record);
        const std::uint64_t time_ms =
            std::visit([](const auto& one) { return one.time_ms; }, record);
        if (!story.starts.empty()) story.starts.back().newest_ms = time_ms;
        return true;
      });
  add_rest_of_start(story);
  if (strange.count == 0) return;
  require(any, observe::describe(strange, path));
  story.notes.push_back(observe::describe(strange, path));
}

/// What is damaged is said; the other files still tell their part.
void read_or_note(const fs::path& path, RunStory& story, bool expected,
                  const std::function<void()>& read) {
  if (!fs::exists(path)) {
    if (expected) story.notes.push_back(path.filename().string() + " is missing");
    return;
  }
  try {
    read();
  } catch (const InputError& error) {
    story.notes.push_back(error.what());
  }
}

/// One of an earlier start would mix its figures with those of the newest.
void read_summary_of_newest(const fs::path& path, RunStory& story) {
  observe::Summary summary = observe::read_summary(path);
  const observe::StartRecord* newest = story.newest();
  require(
      newest == nullptr || summary.start.time_ms == 0 || summary.start.time_ms == newest->time_ms,
      path.string() + " is of another start than the newest in metrics.jsonl: it is left out");
  story.summary = std::move(summary);
}

/// What the end's evidence needs of it, without reading the file again.
observe::Course course_of(const RunStory& story) {
  observe::Course course;
  course.steps = story.steps;
  for (const Beginning& one : story.starts) course.starts.push_back(one.start);
  if (story.starts.empty()) return course;
  course.newest_ms = story.starts.back().newest_ms;
  course.end = story.starts.back().end;
  return course;
}

/// Slurm's own figures; jobs that started the run again under their number count once.
void ask_slurm_energy(RunStory& story) {
  std::set<std::string> asked;
  for (const Beginning& one : story.starts) {
    const std::string& job = one.start.job;
    if (job.empty() || !asked.insert(job).second) continue;
    const cluster::SlurmEnergy energy = cluster::slurm_energy(job);
    story.slurm_energy.push_back(
        {fmt::format("Energy by Slurm, all of job {}", job),
         energy.joules ? observe::joules_text(*energy.joules) : "not measured: " + energy.why});
  }
}

}  // namespace

double Beginning::seconds() const {
  if (end && end->seconds > 0) return end->seconds;
  return newest_ms > start.time_ms ? 1e-3 * static_cast<double>(newest_ms - start.time_ms) : 0;
}

std::optional<observe::BestValidation> RunStory::best() const {
  if (summary && summary->best) return summary->best;
  std::optional<observe::BestValidation> best;
  for (const observe::EpochRecord& epoch : epochs) {
    const std::optional<double> reached = epoch.average      ? std::optional(epoch.average->top1)
                                          : epoch.validation ? std::optional(epoch.validation->top1)
                                                             : std::nullopt;
    const bool is_number = reached && !std::isnan(*reached);  // else other scores judge the run
    if (is_number && (!best || *reached > best->top1)) best = {*reached, epoch.epoch};
  }
  return best;
}

RunStory read_story(const fs::path& path) {
  const train::RunDirectory run(path);
  RunStory story;
  story.name = path.string();
  while (story.name.size() > 1 && story.name.ends_with('/')) story.name.pop_back();
  require_run(path);
  read_metrics(run.metrics(), story);
  const EndEvidence evidence = read_end_evidence(path, course_of(story));
  story.why = why_it_ended(evidence, ask_slurm_of_end(evidence));
  story.notes.insert(story.notes.end(), evidence.notes.begin(), evidence.notes.end());
  const bool began = !story.starts.empty();
  read_or_note(run.summary(), story, story.why.ending == Ending::finished,
               [&] { read_summary_of_newest(run.summary(), story); });
  read_or_note(run.binding(), story, began,
               [&] { story.bindings = observe::read_bindings(run.binding()); });
  read_or_note(run.config(), story, true, [&] {
    story.toml = read_text(run.config());
    story.config = config::config_in(story.toml, run.config().string());
  });
  read_or_note(run.decisions(), story, false,
               [&] { story.decisions = read_text(run.decisions()); });
  ask_slurm_energy(story);
  return story;
}

namespace {

constexpr const char* generator = "lockstep report";

bool ended_well(Ending ending) { return ending == Ending::finished || ending == Ending::running; }

Verdict verdict_of(const RunStory& run, bool alone) {
  std::string text = fmt::format("{}{}: {}", alone ? "" : run.name + ": ",
                                 choice_name(run.why.ending), run.why.what);
  return {std::move(text), run.why.advice, ended_well(run.why.ending)};
}

void add_run(const RunStory& run, bool alone, Document& document) {
  std::vector<Block> blocks = phases_section(run);
  for (auto* section : {ranks_section, nodes_section})
    for (Block& block : section(run)) blocks.push_back(std::move(block));
  if (!blocks.empty()) {
    document.add({Heading{alone ? "Ranks and time" : run.name + ": ranks and time"}});
    document.add(std::move(blocks));
  } else if (!alone) {
    document.add({Heading{run.name}});
  }
  document.add(starts_section(run));
  document.add(ledger_section(run));
  document.add(job_section(run));
  document.add(reproduce_section(run));
}

}  // namespace

RunReport report_runs(const std::vector<std::filesystem::path>& paths) {
  std::vector<RunStory> runs;
  for (const std::filesystem::path& path : paths) runs.push_back(read_story(path));
  const bool alone = runs.size() == 1;
  Document document{alone ? "Run " + runs.front().name : fmt::format("{} runs", runs.size()), {}};
  RunReport report;
  for (const RunStory& run : runs) {
    document.add({verdict_of(run, alone)});
    for (const std::string& note : run.notes)
      report.notes.push_back(fmt::format("{}: {}", run.name, note));
  }
  if (!report.notes.empty()) document.add({Items{report.notes}});
  document.add(figures_table(runs));
  if (!alone) document.add(key_differences_section(runs));
  document.add(curves_section(runs));
  for (const RunStory& run : runs) add_run(run, alone, document);
  report.html = as_html(document, generator);
  report.text = as_text(document);
  return report;
}

bool is_run_report(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string head(4096, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  return head.find(fmt::format("<meta name=\"generator\" content=\"{}\">", generator)) !=
         std::string::npos;
}

}  // namespace lockstep::study
