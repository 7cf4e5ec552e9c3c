#include "lockstep/study/why/why.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/text/join.hpp"

namespace lockstep::study {
namespace {

/// What the program, MPI and the system say of a fault, and which one it then is. The first entry
/// that a text contains counts, so causes come before what follows from them.
struct Sign {
  std::string_view text;
  RunEnding ending;
};
constexpr std::array signs = {
    Sign{"No space left", RunEnding::disk_full},
    Sign{"Disk quota", RunEnding::disk_full},
    Sign{" was started again on ", RunEnding::superseded},
    Sign{"bad_alloc", RunEnding::out_of_memory},
    Sign{"out of memory", RunEnding::out_of_memory},
    Sign{"Cannot allocate memory", RunEnding::out_of_memory},
    Sign{"unable to allocate memory", RunEnding::out_of_memory},  // HDF5
    Sign{"of the GPU's memory", RunEnding::out_of_memory},
    Sign{"into the GPU's memory", RunEnding::out_of_memory},
    Sign{"no host memory for a buffer", RunEnding::out_of_memory},
    Sign{"training diverged", RunEnding::diverged},
    Sign{"training has diverged", RunEnding::diverged},
    Sign{"ranks diverged at step", RunEnding::disagreement},
    Sign{"passes small packets only", RunEnding::network},
    Sign{"is broken: they do not reach", RunEnding::network},
    Sign{"does the network between", RunEnding::network},
    Sign{"is TCP between", RunEnding::network},
    Sign{"does the file system", RunEnding::file_system},
    Sign{"it is in disk sleep", RunEnding::file_system},
    Sign{"Stale file handle", RunEnding::file_system},
    Sign{"Input/output error", RunEnding::file_system},
    Sign{"bad-rows-limit", RunEnding::bad_data},
    Sign{"cannot be decoded", RunEnding::bad_data},
    Sign{": row ", RunEnding::bad_data},
    Sign{"though all ranks answer", RunEnding::network},
    Sign{"ranks missing", RunEnding::lost_rank},
    Sign{"missing: rank", RunEnding::lost_rank},
    Sign{"its process has ended", RunEnding::lost_rank},
    Sign{"the others wait for", RunEnding::stuck},
    Sign{"made progress", RunEnding::stuck},
    Sign{" has gone", RunEnding::lost_rank},
    Sign{" have gone", RunEnding::lost_rank},
    Sign{"did not arrive within", RunEnding::stuck},
    Sign{"stopped listening", RunEnding::stuck},
};

std::optional<RunEnding> ending_in(std::string_view text) {
  const auto* sign = std::find_if(signs.begin(), signs.end(), [&](const Sign& one) {
    return text.find(one.text) != std::string_view::npos;
  });
  if (sign == signs.end()) return std::nullopt;
  return sign->ending;
}

/// A run's records may end some time before its process does: a step, or a validation.
constexpr std::uint64_t with_a_word_ms = 60'000, without_a_word_ms = 600'000;

bool ended_with_job(const EndEvidence& evidence, const SlurmWord& slurm) {
  const bool word = evidence.end || !evidence.post_mortems.empty();
  const std::uint64_t apart_ms = word ? with_a_word_ms : without_a_word_ms;
  const std::uint64_t ended_ms = evidence.last_word_ms();
  return ended_ms + apart_ms >= slurm.from_ms && ended_ms <= slurm.until_ms + with_a_word_ms;
}

/// Slurm's word for what happened to the run, where it is more than that its job failed.
std::optional<RunEnding> ending_of(const EndEvidence& evidence, const SlurmWord& slurm) {
  constexpr std::pair<std::string_view, RunEnding> states[] = {
      {"OUT_OF_ME", RunEnding::out_of_memory}, {"TIMEOUT", RunEnding::out_of_time},
      {"DEADLINE", RunEnding::out_of_time},    {"PREEMPTED", RunEnding::preempted},
      {"NODE_FAIL", RunEnding::lost_rank},     {"BOOT_FAIL", RunEnding::lost_rank}};
  if (!ended_with_job(evidence, slurm)) return std::nullopt;
  for (const auto& [name, ending] : states)
    if (slurm.state.starts_with(name)) return ending;
  return std::nullopt;
}

/// Whether ranks saw only that others are gone or do not move: Slurm may know why.
bool is_an_effect(RunEnding ending) {
  return ending == RunEnding::lost_rank || ending == RunEnding::stuck ||
         ending == RunEnding::unknown;
}

std::string told(const EndEvidence::PostMortem& one) {
  std::string text = one.reason;
  if (!one.troubles.empty()) text += "; " + join(one.troubles, "; ");
  return text;
}

Why of_end_record(const EndEvidence& evidence, const SlurmWord& slurm) {
  const observe::EndRecord& end = *evidence.end;
  if (end.status == "finished")
    return {RunEnding::finished, fmt::format("it finished after step {}", end.steps), ""};
  const std::string after = fmt::format("after step {}", end.steps);
  if (end.status == "stopped") {
    if (end.reason == "the allocation ends soon")
      return {RunEnding::out_of_time, "it stopped " + after + ", because its allocation ended soon",
              ""};
    const RunEnding job = ending_of(evidence, slurm).value_or(RunEnding::stopped);
    const bool asked = job == RunEnding::out_of_time || job == RunEnding::preempted;
    return {asked ? job : RunEnding::stopped,
            fmt::format("it was stopped {} by {}", after, end.reason), ""};
  }
  if (end.status == "diverged") return {RunEnding::diverged, end.reason, ""};
  const RunEnding ending = ending_in(end.reason).value_or(RunEnding::unknown);
  return {is_an_effect(ending) ? ending_of(evidence, slurm).value_or(ending) : ending, end.reason,
          ""};
}

/// Whether two ranks lived long enough to report each other as silent: then not they, but what is
/// between them has failed.
bool cut_off_from_each_other(const EndEvidence::PostMortem& one,
                             const EndEvidence::PostMortem& other) {
  const auto misses = [](const EndEvidence::PostMortem& a, const EndEvidence::PostMortem& b) {
    return std::find(a.missing.begin(), a.missing.end(), b.told_by) != a.missing.end() &&
           told(a).find("silent for") != std::string::npos &&
           told(a).find("it is stopped") == std::string::npos;
  };
  return misses(one, other) && misses(other, one);
}

std::string of_a_cut(const std::vector<EndEvidence::PostMortem>& all) {
  for (const auto& one : all)
    for (const auto& other : all)
      if (one.told_by < other.told_by && cut_off_from_each_other(one, other))
        return fmt::format(
            "ranks {} and {} each report the other as silent: the network between them is broken; "
            "{}",
            one.told_by, other.told_by, told(one));
  return "";
}

/// Ranks report what they saw; the most certain of their causes counts.
Why of_post_mortems(const EndEvidence& evidence, const SlurmWord& slurm) {
  const auto certainty = [](const EndEvidence::PostMortem& one) {
    const std::optional<RunEnding> ending = ending_in(told(one));
    return !ending ? 0 : is_an_effect(*ending) ? 1 : 2;
  };
  const auto best =
      std::max_element(evidence.post_mortems.begin(), evidence.post_mortems.end(),
                       [&](const auto& a, const auto& b) { return certainty(a) < certainty(b); });
  const RunEnding ending = ending_in(told(*best)).value_or(RunEnding::unknown);
  Why why{ending, told(*best), ""};
  if (certainty(*best) < 2) {
    // A rank that is gone is what others see of these.
    if (const std::string cut = of_a_cut(evidence.post_mortems); !cut.empty())
      why = {RunEnding::network, cut, ""};
    else if (why.ending == RunEnding::lost_rank && best->memory_kills > 0)
      why = {RunEnding::out_of_memory,
             fmt::format("{}; meanwhile its node's kernel ended processes for lack of memory ({})",
                         why.what, best->memory_kills),
             ""};
    else if (why.ending == RunEnding::lost_rank && best->all_were_there)
      why = {RunEnding::network,
             why.what + "; its process was still there: the connection between them broke", ""};
    why.ending = ending_of(evidence, slurm).value_or(why.ending);
  }
  if (!best->leave_out.empty()) why.advice = fmt::format("start it without {}; ", best->leave_out);
  return why;
}

/// Whether some process holds the run and has not said that it ends. One that has may still be
/// there after its launcher, while a file system holds it up.
bool goes_on(const EndEvidence& evidence) {
  if (!evidence.held_since_ms) return false;
  if (evidence.end && evidence.end->time_ms >= *evidence.held_since_ms) return false;
  return std::none_of(evidence.post_mortems.begin(), evidence.post_mortems.end(),
                      [&](const EndEvidence::PostMortem& one) {
                        return one.before_ms > std::max(*evidence.held_since_ms, evidence.last_ms);
                      });
}

/// A run whose metrics.jsonl is missing.
Why without_records(const EndEvidence& evidence) {
  if (evidence.checkpoint.empty())
    return {RunEnding::never_began, "no rank of it has begun to train", "see the job's own output"};
  return {RunEnding::unknown,
          "its records are missing or damaged, but it has trained: it has a checkpoint",
          "see the job's own output"};
}

Why without_words(const EndEvidence& evidence, const SlurmWord& slurm) {
  const std::string until = fmt::format(
      "its records end {} without a word",
      evidence.steps == 0 ? "before the first step" : fmt::format("after step {}", evidence.steps));
  if (const auto ending = ending_of(evidence, slurm))
    return {*ending, fmt::format("{}; Slurm says {}", until, slurm.state), ""};
  if (slurm.state.starts_with("CANCELLED") && ended_with_job(evidence, slurm))
    return {RunEnding::killed, fmt::format("{}; Slurm says {}", until, slurm.state), ""};
  if (!evidence.lock_fault.empty())
    return {RunEnding::unknown,
            fmt::format("{}; whether it still runs is not known: {}", until, evidence.lock_fault),
            "see whether its job still runs, or ask as the user who started it"};
  return {RunEnding::killed,
          until +
              ": its processes were killed (kill -9 or another signal, a limit of ulimit, the "
              "system short of memory, a node that went down), or its file system did not answer",
          ""};
}

std::string advice_for(RunEnding ending, bool has_checkpoint) {
  switch (ending) {
    case RunEnding::out_of_memory:
      return "take a smaller batch for each rank, or --recompute auto; of a node's memory, ask "
             "for more";
    case RunEnding::lost_rank:
      return "see that node's log; lockstep preflight measures nodes before a start";
    case RunEnding::stuck:
      return "see whether that rank's node or file system is slow: lockstep preflight";
    case RunEnding::network:
      return "show this to those who look after the network";
    case RunEnding::file_system:
      return "see whether the file system of the run and of the data answers";
    case RunEnding::disk_full:
      return "make room, or choose another --out";
    case RunEnding::diverged:
      return fmt::format("{} with a smaller --optim.lr or a longer warm-up",
                         has_checkpoint ? "resume from an older checkpoint"
                                        : "it has no checkpoint: start another run");
    case RunEnding::disagreement:
      return "the node that differs computes wrongly: lockstep preflight; leave it out";
    case RunEnding::bad_data:
      return "lockstep info DATA names what is damaged; --data.on-bad-row skip takes other rows "
             "for it";
    case RunEnding::killed:
      return "see the job's own output, and the node's log for its kernel's word on memory";
    case RunEnding::finished:
    case RunEnding::running:
    case RunEnding::stopped:
    case RunEnding::out_of_time:
    case RunEnding::preempted:
    case RunEnding::superseded:
    case RunEnding::never_began:
    case RunEnding::unknown:
      break;
  }
  return "";
}

bool may_resume(RunEnding ending) {
  return ending != RunEnding::finished && ending != RunEnding::running &&
         ending != RunEnding::superseded && ending != RunEnding::diverged;
}

}  // namespace

std::uint64_t EndEvidence::last_word_ms() const {
  if (end) return end->time_ms;
  std::uint64_t newest_ms = last_ms;
  for (const PostMortem& one : post_mortems) newest_ms = std::max(newest_ms, one.before_ms);
  return newest_ms;
}

Why why_it_ended(const EndEvidence& evidence, const SlurmWord& slurm) {
  const auto ended = [&](const char* status) {
    return evidence.end && evidence.end->status == status;
  };
  const bool finished = ended("finished"), reported = !evidence.post_mortems.empty();
  if (!finished && goes_on(evidence))
    return {RunEnding::running, fmt::format("it runs: step {} is done", evidence.steps), ""};
  const bool asked = evidence.lock_fault.empty();
  Why why;
  if (!finished && !ended("stopped") && reported)
    why = of_post_mortems(evidence, slurm);
  else if (evidence.end)
    why = of_end_record(evidence, slurm);
  else if (!evidence.start && asked)
    why = without_records(evidence);
  else
    why = without_words(evidence, slurm);
  why.advice += advice_for(why.ending, !evidence.checkpoint.empty());
  if (may_resume(why.ending) && asked)
    why.advice +=
        fmt::format("{}the same command with --resume auto {}",
                    why.advice.empty() || why.advice.ends_with("; ") ? "" : "; ",
                    evidence.checkpoint.empty() ? "begins again: there is no checkpoint yet"
                                                : "continues from " + evidence.checkpoint);
  return why;
}

}  // namespace lockstep::study
