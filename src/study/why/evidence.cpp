#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/study/why/why.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

/// Milliseconds since 1970 of "2026-11-25T03:40:00Z"; 0 when it is something else.
std::uint64_t utc_ms(const std::string& text) {
  std::tm time = {};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (end == nullptr || *end != '\0') return 0;
  return static_cast<std::uint64_t>(::timegm(&time)) * 1000;
}

/// Programs before this one left only a text of it.
Ending ending_of(const std::string& name, const std::string& reason) {
  return find_choice<Ending>(name).value_or(ending_in(reason));
}

/// A post-mortem that was written after `since_ms`. Empty for an older one, and with a note for one
/// that cannot be read.
std::optional<EndEvidence::PostMortem> read_post_mortem(const fs::path& path,
                                                        std::uint64_t since_ms,
                                                        std::vector<std::string>& notes) {
  try {
    const auto json = nlohmann::json::parse(read_text(path));
    const std::uint64_t before_ms = utc_ms(json.at("time").get<std::string>()) + 1000;
    if (before_ms <= since_ms) return std::nullopt;
    const auto reason = json.at("reason").get<std::string>();
    EndEvidence::PostMortem found{.reason = reason,
                                  .ending = ending_of(json.value("ending", ""), reason),
                                  .leave_out = json.value("leave_out", std::string()),
                                  .told_by = json.value("told_by_rank", 0),
                                  .missing = json.value("missing", std::vector<int>()),
                                  .before_ms = before_ms};
    const auto& ranks = json.at("ranks");
    const auto of = [&](int rank) -> const nlohmann::json& {
      return ranks.at(static_cast<std::size_t>(rank));
    };
    for (const int rank : found.missing) {
      if (of(rank).at("host") == of(found.told_by).at("host"))
        found.memory_kills = json.value("memory_kills", std::uint64_t{0});
      if (of(rank).value("silent", false) && !of(rank).contains("process"))
        found.silent.push_back(rank);
    }
    found.all_were_there =
        ranks.size() > 1 && found.missing.empty() &&
        std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) {
          return rank.value("state", "") == "present" && !rank.contains("process");
        });
    for (const auto& rank : ranks)
      if (rank.contains("process"))
        found.troubles.push_back(fmt::format("rank {} on {}: {}", rank.at("rank").get<int>(),
                                             rank.at("host").get<std::string>(),
                                             rank.at("process").get<std::string>()));
    return found;
  } catch (const nlohmann::json::exception&) {
    notes.push_back(path.string() + " is damaged");
  } catch (const InputError& error) {
    notes.push_back(error.what());
  }
  return std::nullopt;
}

/// What the summary says of the newest start's end: where metrics.jsonl is missing or could not be
/// written any more, it alone does. Empty for an older or a damaged one.
std::optional<observe::EndRecord> end_in_summary(const fs::path& path,
                                                 const std::optional<observe::StartRecord>& start) {
  try {
    const observe::Summary summary = observe::read_summary(path);
    if (start && summary.start.time_ms != start->time_ms) return std::nullopt;
    return observe::EndRecord{.status = summary.status,
                              .reason = summary.reason,
                              .steps = summary.steps,
                              .epochs = summary.epochs,
                              .seconds = summary.seconds,
                              .time_ms = summary.ended_ms,
                              .ending = summary.ending};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// 0 for "N/A" and "Unknown".
std::uint64_t milliseconds(const std::string& seconds) {
  return 1000 * whole_number<std::uint64_t>(seconds).value_or(0);
}

}  // namespace

EndEvidence read_end_evidence(const fs::path& path) {
  require_run(path);
  const fs::path metrics = train::RunDirectory(path).metrics();
  const observe::Course course = observe::read_course(metrics);
  EndEvidence evidence = read_end_evidence(path, course);
  if (course.strange.count > 0)
    evidence.notes.push_back(observe::describe(course.strange, metrics));
  return evidence;
}

void require_run(const fs::path& path) {
  const train::RunDirectory run(path);
  require(fs::is_directory(path) && (fs::exists(run.metrics()) || fs::exists(run.config()) ||
                                     fs::exists(run.checkpoints())),
          fmt::format("{} is not a run's folder: it has neither metrics.jsonl nor config.toml",
                      path.string()));
}

EndEvidence read_end_evidence(const fs::path& path, const observe::Course& course) {
  const train::RunDirectory run(path);
  EndEvidence evidence;
  evidence.end = course.end;
  evidence.steps = course.steps;
  if (!course.starts.empty()) {
    evidence.start = course.starts.back();
    evidence.steps = std::max(evidence.steps, evidence.start->from_step);
  }
  evidence.last_ms = course.newest_ms;
  for (const observe::StartRecord& start : course.starts)
    if (evidence.notes.empty() && start.run_id != course.starts.front().run_id)
      evidence.notes.push_back(run.metrics().string() + " has the records of several runs");
  if (!evidence.end) evidence.end = end_in_summary(run.summary(), evidence.start);
  if (evidence.end && evidence.end->ending == Ending::unknown)
    evidence.end->ending = ending_of(evidence.end->status, evidence.end->reason);
  if (!evidence.start && evidence.end) evidence.steps = evidence.end->steps;
  const train::RunLock::State lock = train::RunLock::look(run);
  evidence.held_since_ms = lock.held_since_ms;
  evidence.lock_fault = lock.fault;
  const std::uint64_t since_ms = evidence.start ? evidence.start->time_ms : 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("post-mortem") || !name.ends_with(".json")) continue;
    if (auto one = read_post_mortem(entry.path(), since_ms, evidence.notes))
      evidence.post_mortems.push_back(std::move(*one));
  }
  const auto checkpoints = model::CheckpointDirectory(run.checkpoints(), 1).newest_first();
  if (!checkpoints.empty()) evidence.checkpoint = checkpoints.front().string();
  return evidence;
}

/// The controller also knows that a job was preempted, which one that then ended in time has not as
/// its state. Accounting knows each start of a job.
SlurmWord ask_slurm_of_end(const EndEvidence& evidence) {
  const std::string job = evidence.start ? evidence.start->job : "";
  const auto known = cluster::ask_squeue(job, {"State", "PreemptTime", "EndTime"});
  const std::uint64_t preempted_ms = milliseconds(known[1]), ended_ms = milliseconds(known[2]);
  if (preempted_ms > 0) return {"PREEMPTED", preempted_ms, std::max(preempted_ms, ended_ms)};
  SlurmWord word{known[0], ended_ms, ended_ms};
  const std::uint64_t run_ms = evidence.last_word_ms();
  const auto apart_ms = [run_ms](std::uint64_t ms) {
    return ms > run_ms ? ms - run_ms : run_ms - ms;
  };
  for (const auto& start : cluster::ask_sacct(job, {"State", "End"}))
    if (const std::uint64_t ms = milliseconds(start[1]);
        word.until_ms == 0 || apart_ms(ms) <= apart_ms(word.until_ms))
      word = {start[0], ms, ms};
  return word;
}

}  // namespace lockstep::study
