#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/study/why/why.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

int run(Launch& launch, const std::string& path, bool json) {
  if (launch.leave_to_rank_0()) return status_done;
  const study::EndEvidence evidence = study::read_end_evidence(path);
  for (const std::string& note : evidence.notes) log::warn(note);
  const study::SlurmWord slurm = study::ask_slurm_of_end(evidence);
  const study::Why why = study::why_it_ended(evidence, slurm);
  const char* ending = choice_name(why.ending);
  if (json) {
    log::text(json_text(Json{{"path", path},
                             {"ending", ending},
                             {"what", why.what},
                             {"advice", why.advice},
                             {"steps", evidence.steps},
                             {"newest_record_ms", evidence.last_ms},
                             {"checkpoint", evidence.checkpoint},
                             {"slurm", slurm.state}},
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
  return {app, [options](Launch& launch) { return run(launch, options->path, options->json); },
          [options](const Supposed& supposed) {
            if (supposed.shows(options->path)) study::read_end_evidence(options->path);
          }};
}

}  // namespace lockstep::app
