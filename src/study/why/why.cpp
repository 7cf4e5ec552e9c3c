#include "lockstep/study/why/why.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text/words.hpp"

namespace lockstep::study {
namespace {

/// A run's records may end some time before its process does: a step, or a validation.
constexpr std::uint64_t with_a_word_ms = 60'000, without_a_word_ms = 600'000;

bool ended_with_job(const EndEvidence& evidence, const SlurmWord& slurm) {
  const bool word = evidence.end || !evidence.post_mortems.empty();
  const std::uint64_t apart_ms = word ? with_a_word_ms : without_a_word_ms;
  const std::uint64_t ended_ms = evidence.last_word_ms();
  return ended_ms + apart_ms >= slurm.from_ms && ended_ms <= slurm.until_ms + with_a_word_ms;
}

/// Slurm's word for what happened to the run, where it is more than that its job failed.
std::optional<Ending> ending_of(const EndEvidence& evidence, const SlurmWord& slurm) {
  constexpr std::pair<std::string_view, Ending> states[] = {
      {"OUT_OF_ME", Ending::out_of_memory}, {"TIMEOUT", Ending::out_of_time},
      {"DEADLINE", Ending::out_of_time},    {"PREEMPTED", Ending::preempted},
      {"NODE_FAIL", Ending::lost_rank},     {"BOOT_FAIL", Ending::lost_rank}};
  if (!ended_with_job(evidence, slurm)) return std::nullopt;
  for (const auto& [name, ending] : states)
    if (slurm.state.starts_with(name)) return ending;
  return std::nullopt;
}

std::string told(const EndEvidence::PostMortem& one) {
  std::string text = one.reason;
  if (!one.troubles.empty()) text += "; " + join(one.troubles, "; ");
  return text;
}

Why of_end_record(const EndEvidence& evidence, const SlurmWord& slurm) {
  const observe::EndRecord& end = *evidence.end;
  if (end.ending == Ending::finished)
    return {Ending::finished, fmt::format("it finished after step {}", end.steps), ""};
  const std::string after = fmt::format("after step {}", end.steps);
  if (end.stopped()) {
    if (end.ending == Ending::out_of_time)
      return {Ending::out_of_time, "it stopped " + after + ", because its allocation ended soon",
              ""};
    const Ending job = ending_of(evidence, slurm).value_or(Ending::stopped);
    const bool asked = job == Ending::out_of_time || job == Ending::preempted;
    return {asked ? job : Ending::stopped,
            fmt::format("it was stopped {} by {}", after, end.reason), ""};
  }
  return {is_an_effect(end.ending) ? ending_of(evidence, slurm).value_or(end.ending) : end.ending,
          end.reason, ""};
}

/// Whether two ranks lived long enough to report each other as silent: then not they, but what is
/// between them has failed.
bool cut_off_from_each_other(const EndEvidence::PostMortem& one,
                             const EndEvidence::PostMortem& other) {
  const auto misses = [](const EndEvidence::PostMortem& a, const EndEvidence::PostMortem& b) {
    return std::find(a.silent.begin(), a.silent.end(), b.told_by) != a.silent.end();
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
    return one.ending == Ending::unknown ? 0 : is_an_effect(one.ending) ? 1 : 2;
  };
  const auto best =
      std::max_element(evidence.post_mortems.begin(), evidence.post_mortems.end(),
                       [&](const auto& a, const auto& b) { return certainty(a) < certainty(b); });
  Why why{best->ending, told(*best), ""};
  if (certainty(*best) < 2) {
    // A rank that is gone is what others see of these.
    if (const std::string cut = of_a_cut(evidence.post_mortems); !cut.empty())
      why = {Ending::network, cut, ""};
    else if (why.ending == Ending::lost_rank && best->memory_kills > 0)
      why = {Ending::out_of_memory,
             fmt::format("{}; meanwhile its node's kernel ended processes for lack of memory ({})",
                         why.what, best->memory_kills),
             ""};
    else if (why.ending == Ending::lost_rank && best->all_were_there)
      why = {Ending::network,
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
    return {Ending::never_began, "no rank of it has begun to train", "see the job's own output"};
  return {Ending::unknown,
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
    return {Ending::killed, fmt::format("{}; Slurm says {}", until, slurm.state), ""};
  if (!evidence.lock_fault.empty())
    return {Ending::unknown,
            fmt::format("{}; whether it still runs is not known: {}", until, evidence.lock_fault),
            "see whether its job still runs, or ask as the user who started it"};
  return {Ending::killed,
          until +
              ": its processes were killed (kill -9 or another signal, a limit of ulimit, the "
              "system short of memory, a node that went down), or its file system did not answer",
          ""};
}

std::string advice_for(Ending ending, bool has_checkpoint) {
  switch (ending) {
    case Ending::out_of_memory:
      return "take a smaller batch for each rank, or --recompute auto; of a node's memory, ask "
             "for more";
    case Ending::lost_rank:
      return "see that node's log; lockstep preflight measures nodes before a start";
    case Ending::stuck:
      return "see whether that rank's node or file system is slow: lockstep preflight";
    case Ending::network:
      return "show this to those who look after the network";
    case Ending::file_system:
      return "see whether the file system of the run and of the data answers";
    case Ending::disk_full:
      return "make room, or choose another --out";
    case Ending::diverged:
      return fmt::format("{} with a smaller --optim.lr or a longer warm-up",
                         has_checkpoint ? "resume from an older checkpoint"
                                        : "it has no checkpoint: start another run");
    case Ending::disagreement:
      return "the node that differs computes wrongly: lockstep preflight; leave it out";
    case Ending::bad_data:
      return "lockstep info DATA names what is damaged; --data.on-bad-row skip takes other rows "
             "for it";
    case Ending::bad_checkpoint:
      return "lockstep info CHECKPOINT says what is damaged; --resume auto takes the newest whole "
             "one";
    case Ending::killed:
      return "see the job's own output, and the node's log for its kernel's word on memory";
    case Ending::finished:
    case Ending::running:
    case Ending::stopped:
    case Ending::out_of_time:
    case Ending::preempted:
    case Ending::superseded:
    case Ending::never_began:
    case Ending::unknown:
      break;
  }
  return "";
}

bool may_resume(Ending ending) {
  return ending != Ending::finished && ending != Ending::running && ending != Ending::superseded &&
         ending != Ending::diverged;
}

}  // namespace

std::uint64_t EndEvidence::last_word_ms() const {
  if (end) return end->time_ms;
  std::uint64_t newest_ms = last_ms;
  for (const PostMortem& one : post_mortems) newest_ms = std::max(newest_ms, one.before_ms);
  return newest_ms;
}

Why why_it_ended(const EndEvidence& evidence, const SlurmWord& slurm) {
  const bool finished = evidence.end && evidence.end->ending == Ending::finished;
  const bool stopped = evidence.end && evidence.end->stopped();
  if (!finished && goes_on(evidence))
    return {Ending::running, fmt::format("it runs: step {} is done", evidence.steps), ""};
  const bool asked = evidence.lock_fault.empty();
  Why why;
  if (!finished && !stopped && !evidence.post_mortems.empty())
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
