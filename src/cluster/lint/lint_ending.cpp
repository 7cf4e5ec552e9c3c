#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

namespace lockstep::cluster {
namespace {

/// --signal=[B:]NAME[@seconds].
struct SignalRequest {
  bool to_script = false;
  std::string name;  ///< without SIG
  long seconds = 60;
};

std::string without_sig(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name.starts_with("SIG")) name.erase(0, 3);
  if (name == "10") return "USR1";
  if (name == "12") return "USR2";
  if (name == "15") return "TERM";
  return name;
}

std::optional<SignalRequest> read_signal(std::string_view text) {
  SignalRequest request;
  if (const std::size_t colon = text.find(':'); colon != text.npos) {
    for (const char flag : text.substr(0, colon)) {
      if (flag != 'B' && flag != 'R') return std::nullopt;
      request.to_script = request.to_script || flag == 'B';
    }
    text.remove_prefix(colon + 1);
  }
  if (const std::size_t at = text.find('@'); at != text.npos) {
    const auto seconds = whole_number<long>(text.substr(at + 1));
    if (!seconds) return std::nullopt;
    request.seconds = *seconds;
    text = text.substr(0, at);
  }
  request.name = without_sig(std::string(text));
  if (request.name.empty()) return std::nullopt;
  return request;
}

/// Commands whose program is `name`, from command `first` on.
std::vector<const ShellCommand*> calls(const BatchScript& script, std::string_view name,
                                       std::size_t first = 0) {
  std::vector<const ShellCommand*> found;
  for (std::size_t i = first; i < script.commands.size(); ++i) {
    const auto& words = script.commands[i].words;
    const std::size_t at = program_in(words);
    if (at < words.size() && words[at] == name) found.push_back(&script.commands[i]);
  }
  return found;
}

bool traps(const BatchScript& script, const std::string& signal) {
  return std::ranges::any_of(calls(script, "trap"), [&](const ShellCommand* trap) {
    return std::any_of(trap->words.begin() + 1, trap->words.end(),
                       [&](const std::string& word) { return without_sig(word) == signal; });
  });
}

void lint_signal(const BatchScript& script, Findings& findings) {
  const Setting* given = script.directive("signal");
  if (!given)
    return findings.warning(0, "signal",
                            "no --signal: only lockstep's own clock stops the run before its "
                            "time is over. Write --signal=B:USR1@120 and a trap that sends USR1 "
                            "to srun");
  const auto request = read_signal(given->value);
  if (!request)
    return findings.error(
        given->line, "signal",
        fmt::format("--signal takes [B:]name[@seconds], not \"{}\"", given->value));
  const Setting* time = script.directive("time");
  const auto limit_s = time ? read_time_limit(time->value) : std::nullopt;
  if (limit_s && *limit_s > 0 && static_cast<double>(request->seconds) >= *limit_s)
    findings.error(given->line, "signal",
                   fmt::format("{} s before its end a job of --time={} has not started",
                               request->seconds, time->value));
  if (request->to_script && !traps(script, request->name))
    findings.error(
        given->line, "signal",
        fmt::format("the script has no trap for {}, which kills it and so the job", request->name));
  for (const RankStart& start : script.starts)
    if (request->to_script && start.trains() && !start.background && traps(script, request->name))
      findings.error(start.line, "signal",
                     fmt::format("the trap for {} runs only when this has ended: start it in the "
                                 "background (&), and wait for it",
                                 request->name));
  if (!request->to_script && traps(script, request->name))
    findings.error(given->line, "signal",
                   fmt::format("without B: only the ranks get {}, and the script's trap never runs",
                               request->name));
  if (!request->to_script && request->name != "USR1" && request->name != "TERM")
    findings.error(
        given->line, "signal",
        fmt::format("{} kills lockstep: USR1 and TERM stop it with a checkpoint", request->name));
}

void lint_requeue(const BatchScript& script, Findings& findings) {
  if (!script.requeues()) return;
  const Setting* mode = script.directive("open-mode");
  if (!mode || mode->value != "append")
    findings.warning(script.line_of("requeue"), "open-mode",
                     "a job that is started again empties its output file: write "
                     "--open-mode=append");
  if (!script.directive("requeue"))
    findings.warning(0, "requeue",
                     "the script requeues its job, which some clusters forbid unless it has "
                     "--requeue");
  if (const Setting* no = script.directive("no-requeue"))
    findings.error(no->line, "requeue", "--no-requeue contradicts the requeueing of this job");
}

/// A job that failed must not end as COMPLETED.
void lint_status(const BatchScript& script, const RankStart& start, Findings& findings) {
  const ShellCommand& command = script.commands[start.command];
  const std::size_t last = script.last_of_pipe(start.command);
  const std::string& end = script.commands[last].end;
  const std::size_t next = last + 1;
  const bool exits = !calls(script, "exit", next).empty();
  if (command.end == "|" && !script.mentions("pipefail"))
    return findings.error(start.line, "status",
                          "the last command of a pipe sets its status, so a job that failed is "
                          "COMPLETED: set -o pipefail");
  if (end == "&") {
    const auto waits = calls(script, "wait", next);
    if (waits.empty())
      return findings.error(start.line, "status",
                            "the script does not wait for this: Slurm kills it when the script "
                            "ends");
    const bool by_number = std::ranges::any_of(waits, [](const ShellCommand* wait) {
      return program_in(wait->words) + 1 < wait->words.size();
    });
    if (!by_number)
      findings.error(start.line, "status",
                     "wait alone returns 0, so a job that failed is COMPLETED: wait for the "
                     "number ($!) and exit with its status");
    return;
  }
  const bool judged = end == "||" || end == "&&" || command.words[0] == "if" ||
                      command.words[0] == "while" || command.words[0] == "until";
  if (!judged && next < script.commands.size() && !exits && !script.stops_at_errors())
    findings.warning(start.line, "status",
                     "the script ends with the status of what follows, so a job that failed may "
                     "be COMPLETED: keep $? and exit with it");
}

}  // namespace

void lint_ending(const BatchScript& script, Findings& findings) {
  if (std::ranges::any_of(script.starts, [](const RankStart& start) { return start.trains(); })) {
    lint_signal(script, findings);
    lint_requeue(script, findings);
  }
  for (const RankStart& start : script.starts) lint_status(script, start, findings);
}

}  // namespace lockstep::cluster
