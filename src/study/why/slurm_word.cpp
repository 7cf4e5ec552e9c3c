#include <algorithm>
#include <cstdint>
#include <string>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/study/why/why.hpp"

namespace lockstep::study {
namespace {

/// 0 for "N/A" and "Unknown".
std::uint64_t milliseconds(const std::string& seconds) {
  return 1000 * whole_number<std::uint64_t>(seconds).value_or(0);
}

}  // namespace

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
