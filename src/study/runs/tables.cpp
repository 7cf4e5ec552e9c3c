#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/observe/report.hpp"
#include "study/runs/story.hpp"

namespace lockstep::study {
namespace {

using Texts = std::vector<std::string>;

/// A name of a row and how it is found; rows that are empty for all runs are left out.
struct Figures {
  TextTable table;
  const std::vector<RunStory>& runs;
  void row(const std::string& name, const std::function<std::string(const RunStory&)>& value) {
    Texts cells = {name};
    bool any = false;
    for (const RunStory& run : runs) {
      const std::string text = value(run);
      any = any || !text.empty();
      cells.push_back(text.empty() ? "-" : text);
    }
    if (any) table.rows.push_back(std::move(cells));
  }
};

/// As summary.json has it, where there is one; else from the lines of the newest start.
observe::StepTimes mean_step_of(const RunStory& run) {
  if (run.summary) return run.summary->mean_step;
  return run.measured.count > 0 ? run.measured.mean() : observe::StepTimes{};
}

std::string images_per_s_of(const RunStory& run) {
  double rate = 0;
  if (run.summary)
    rate = run.summary->images_per_s;
  else if (run.measured.sum.total_ms() > 0)
    rate = 1e3 * static_cast<double>(run.rows) / run.measured.sum.total_ms();
  return rate > 0 ? fmt::format("{:.1f}", rate) : "";
}

std::string best_of(const RunStory& run) {
  const auto best = run.best();
  if (!best) return "";
  const std::string reached = best->score.empty()
                                  ? percent_text(best->top1)
                                  : fmt::format("{} {:.5g}", best->score, best->top1);
  return fmt::format("{} in epoch {}", reached, best->epoch);
}

std::optional<observe::Validation> newest_validation(const RunStory& run) {
  if (run.summary && run.summary->validation) return run.summary->validation;
  for (auto epoch = run.epochs.rbegin(); epoch != run.epochs.rend(); ++epoch)
    if (epoch->validation) return epoch->validation;
  return std::nullopt;
}

void add_results(Figures& figures) {
  figures.row("end", [](const RunStory& run) { return std::string(choice_name(run.why.ending)); });
  figures.row("steps", [](const RunStory& run) { return std::to_string(run.steps); });
  figures.row("epochs", [](const RunStory& run) {
    const std::uint64_t done = run.summary          ? run.summary->epochs
                               : run.epochs.empty() ? 0
                                                    : run.epochs.back().epoch;
    const std::uint64_t all = run.newest() ? run.newest()->epochs : 0;
    return all > 0 ? fmt::format("{} of {}", done, all) : std::to_string(done);
  });
  figures.row("best validation", best_of);
  figures.row("newest validation", [](const RunStory& run) {
    const auto one = newest_validation(run);
    if (!one) return std::string();
    const std::string reached =
        one->scores.empty() ? percent_text(one->top1) : observe::say_scores(one->scores);
    return fmt::format("{}, loss {:.4f}", reached, one->loss);
  });
}

void add_speed(Figures& figures) {
  figures.row("images/s", images_per_s_of);
  std::string unit = ", ms a step";
  for (const observe::StepPart& part : observe::step_parts)
    figures.row(part.name + std::exchange(unit, ""), [&part](const RunStory& run) {
      const observe::StepTimes mean = mean_step_of(run);
      return mean.total_ms() > 0 ? fmt::format("{:.3f}", mean.*part.step) : "";
    });
  figures.row("time of the newest start", [](const RunStory& run) {
    if (run.summary) return human_seconds(run.summary->seconds);
    return run.starts.empty() ? "" : human_seconds(run.starts.back().seconds());
  });
  figures.row("peak memory of a rank", [](const RunStory& run) {
    return run.summary ? human_bytes(static_cast<double>(run.summary->peak_resident_bytes)) : "";
  });
}

void add_set_up(Figures& figures) {
  const auto row = [&](const char* name, auto text) {
    figures.row(name, [text](const RunStory& run) {
      return run.newest() ? text(*run.newest()) : std::string();
    });
  };
  using Start = observe::StartRecord;
  row("network", [](const Start& start) { return start.model; });
  row("precision", [](const Start& start) { return start.precision; });
  row("batch", [](const Start& start) { return std::to_string(start.batch); });
  row("ranks, nodes", [](const Start& start) {
    return fmt::format("{}, {}", start.ranks, std::max<std::size_t>(1, start.hosts.size()));
  });
  row("devices", [](const Start& start) { return join(start.devices, ", "); });
}

std::string faults_of(const Beginning& one, bool newest) {
  if (one.end) return one.end->status + (one.end->reason.empty() ? "" : ": " + one.end->reason);
  return newest ? "no word of its end" : "ended without a word";
}

}  // namespace

std::string utc_text(std::uint64_t ms) {
  if (ms == 0) return "?";
  return fmt::format("{:%F %T} UTC", fmt::gmtime(static_cast<std::time_t>(ms / 1000)));
}

std::string percent_text(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::vector<Block> figures_table(const std::vector<RunStory>& runs) {
  Figures figures{{}, runs};
  Texts head = {runs.size() == 1 ? "" : "run"};
  for (const RunStory& run : runs) head.push_back(run.name);
  figures.table.rows.push_back(head);
  add_results(figures);
  add_speed(figures);
  add_set_up(figures);
  figures.table.caption = "Speed and times are those of the newest start.";
  return {Heading{"In numbers"}, std::move(figures.table)};
}

std::vector<Block> key_differences_section(const std::vector<RunStory>& runs) {
  TextTable table;
  table.rows.push_back({"key"});
  for (const RunStory& run : runs)
    if (run.config) table.rows.front().push_back(run.name);
  if (table.rows.front().size() < 3) return {};
  for (const config::ConfigKey& key : config::config_keys()) {
    if (key.name == "out") continue;
    Texts row = {key.name};
    for (const RunStory& run : runs)
      if (run.config) row.push_back(key.get(*run.config));
    if (std::ranges::adjacent_find(row.begin() + 1, row.end(), std::ranges::not_equal_to{}) !=
        row.end())
      table.rows.push_back(row);
  }
  if (table.rows.size() == 1)
    return {Heading{"Keys that differ"}, Paragraph{"None but the folder: --out."}};
  return {Heading{"Keys that differ"}, table};
}

std::vector<Block> starts_section(const RunStory& run) {
  std::vector<Block> blocks;
  if (!run.starts.empty()) {
    TextTable table;
    table.rows.push_back({"start", "began", "from step", "ranks", "time", "end"});
    const std::size_t shown = std::min<std::size_t>(run.starts.size(), 50);
    for (std::size_t k = run.starts.size() - shown; k < run.starts.size(); ++k) {
      const Beginning& one = run.starts[k];
      table.rows.push_back({std::to_string(k + 1), utc_text(one.start.time_ms),
                            std::to_string(one.start.from_step), std::to_string(one.start.ranks),
                            human_seconds(one.seconds()),
                            faults_of(one, k + 1 == run.starts.size())});
    }
    blocks.push_back(table);
  }
  Texts items;
  for (const observe::ResumeRecord& resume : run.resumes)
    items.push_back(fmt::format("resumed after step {} with other keys or conditions: {}",
                                resume.step, join(resume.changes, ", ")));
  if (run.skipped_steps > 0)
    items.push_back(fmt::format("{} overflowed in their precision and were skipped",
                                counted(run.skipped_steps, "step")));
  for (const std::string& row : run.bad_rows) items.push_back("replaced a broken row: " + row);
  if (items.size() > 30) {
    const std::size_t more = items.size() - 30;
    items.resize(30);
    items.push_back(fmt::format("and {} more", more));
  }
  double blocked_ms = 0;
  for (const observe::CheckpointRecord& one : run.checkpoints) blocked_ms += one.blocked_ms;
  if (!run.checkpoints.empty())
    items.push_back(fmt::format("{}, for which steps waited {} altogether",
                                counted(run.checkpoints.size(), "checkpoint"),
                                human_seconds(blocked_ms / 1e3)));
  if (!items.empty()) blocks.push_back(Items{items});
  if (!blocks.empty()) blocks.insert(blocks.begin(), Heading{"Starts, faults and resumes"});
  return blocks;
}

std::vector<Block> job_section(const RunStory& run) {
  if (run.starts.empty()) return {};
  const Beginning& one = run.starts.back();
  const std::size_t nodes = std::max<std::size_t>(1, one.start.hosts.size());
  const char* newest = run.starts.size() > 1 ? ", newest start" : "";
  TextTable table;
  table.rows = {{"field", "value"},
                {"Job Id", one.start.job.empty() ? "none" : one.start.job},
                {fmt::format("Start Time{}", newest), utc_text(one.start.time_ms)},
                {fmt::format("End Time{}", newest), utc_text(one.newest_ms)},
                {fmt::format("Elapsed Time{}", newest), human_seconds(one.seconds())},
                {fmt::format("Number of Nodes{}", newest), std::to_string(nodes)},
                {fmt::format("Number of GPUs{}", newest), std::to_string(gpus_of(run))},
                {fmt::format("Hosts{}", newest), join(one.start.hosts, ", ")}};
  for (std::vector<std::string>& row : used_rows(run)) table.rows.push_back(std::move(row));
  table.rows.insert(table.rows.end(), run.slurm_energy.begin(), run.slurm_energy.end());
  table.caption =
      "The fields that centres ask for in a job report. Where the run was killed, its end is that "
      "of its newest record. Step Id, User, Slurm Account and the utilisation of SMs and memory "
      "are not recorded.";
  return {Heading{"Job report"}, table};
}

std::vector<Block> reproduce_section(const RunStory& run) {
  std::vector<Block> blocks;
  const auto add_command = [&](const observe::StartRecord& start, const std::string& which) {
    if (start.command.empty()) return;
    std::string text;
    if (!start.directory.empty()) text = "cd " + start.directory + "\n";
    text += fmt::format("# build {}, {}\n{}", start.build.empty() ? "?" : start.build,
                        counted(start.ranks, "rank"), start.command);
    blocks.push_back(Lines{
        fmt::format("The {} start's command, of each of {}", which, counted(start.ranks, "rank")),
        text, true});
  };
  // A resume's command alone repeats nothing.
  if (!run.starts.empty()) add_command(run.starts.front().start, "first");
  if (run.starts.size() > 1) add_command(run.starts.back().start, "newest");
  if (!run.toml.empty()) blocks.push_back(Lines{"config.toml: all keys", run.toml});
  if (!run.decisions.empty())
    blocks.push_back(Lines{"decisions.toml: what the start chose", run.decisions});
  if (!blocks.empty())
    blocks.insert(blocks.begin(), Heading{"Configuration, and how to repeat it"});
  return blocks;
}

}  // namespace lockstep::study
