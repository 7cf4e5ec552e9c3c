#include <memory>
#include <sstream>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/start/quiet_end.hpp"
#include "app/status.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/study/why/why.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// What Slurm says of the job. Its controller knows a job for some minutes after its end, also that
/// it was preempted, which a job that then ended in time has not as its state. Accounting, where
/// there is one, knows it for ever. Empty without a job, or an answer in 10 s.
std::string slurm_state_of(const std::string& job) {
  if (!whole_number<std::uint64_t>(job)) return "";
  std::istringstream known(
      cluster::ask_slurm(fmt::format("squeue -h -t all -j {} -O State:30,PreemptTime:30", job)));
  std::string state, preempted;
  known >> state >> preempted;
  if (!preempted.empty() && preempted != "N/A") return "PREEMPTED";
  const std::string booked = cluster::ask_slurm(fmt::format("sacct -n -P -X -j {} -o State", job));
  return booked.empty() ? state : booked;
}

int run(Launch& launch, const std::string& path, bool json) {
  if (leave_to_rank_0(launch)) return status_done;
  const study::EndEvidence evidence = study::read_end_evidence(path);
  const std::string slurm = slurm_state_of(evidence.start ? evidence.start->job : "");
  const study::Why why = study::why_it_ended(evidence, slurm);
  const char* ending = choice_name(why.ending);
  if (json) {
    log::info(json_text(Json{{"path", path},
                             {"ending", ending},
                             {"what", why.what},
                             {"advice", why.advice},
                             {"steps", evidence.steps},
                             {"newest_record_ms", evidence.last_ms},
                             {"checkpoint", evidence.checkpoint},
                             {"slurm", slurm}},
                        2));
    return status_done;
  }
  log::info(fmt::format("{}: {}", ending, why.what));
  if (!why.advice.empty()) log::info(why.advice);
  return status_done;
}

}  // namespace

Command add_why(Arguments root) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "why", "Say how a run ended, from its folder (and Slurm's accounting), and what to do now");
  app.add("run", options->path, "the run's folder").required();
  app.add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch& launch) { return run(launch, options->path, options->json); }};
}

}  // namespace lockstep::app
