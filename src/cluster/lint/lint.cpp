#include "lockstep/cluster/lint/lint.hpp"

#include <algorithm>

#include "cluster/lint/batch_script.hpp"

namespace lockstep::cluster {

std::vector<Finding> lint_batch_script(std::string_view text, const LintContext& context) {
  Findings findings;
  const BatchScript script = read_batch_script(text, findings);
  lint_resources(script, findings);
  lint_starts(script, findings);
  lint_ending(script, findings);
  lint_values(script, context, findings);
  lint_paths(script, context, findings);
  lint_flow(script, findings);
  std::vector<Finding> all = findings.take();
  std::ranges::stable_sort(all, {}, &Finding::line);
  return all;
}

namespace {

/// How a command is reached.
struct Reach {
  int loops = 0;         ///< for, while and until around it
  int conditions = 0;    ///< if, case and the like around it
  std::size_t done = 0;  ///< the number of the command that ends the innermost loop
};

std::vector<Reach> reaches(const BatchScript& script) {
  std::vector<Reach> found(script.commands.size());
  std::vector<std::size_t> open;  // loops' first commands
  int conditions = 0;
  for (std::size_t i = 0; i < script.commands.size(); ++i) {
    const ShellCommand& command = script.commands[i];
    const std::string& word = command.words.front();
    if (word == "if" || word == "case") ++conditions;
    if (word == "do") open.push_back(i);
    if (word == "done" && !open.empty()) {
      for (std::size_t j = open.back(); j < i; ++j)
        if (found[j].done == 0) found[j].done = i;
      open.pop_back();
    }
    if ((word == "fi" || word == "esac") && conditions > 0) --conditions;
    found[i].loops = static_cast<int>(open.size());
    found[i].conditions = conditions;
  }
  return found;
}

bool is_call(const ShellCommand& command, std::string_view name) {
  const std::size_t at = program_in(command.words);
  return at < command.words.size() && command.words[at] == name;
}

/// A start that a loop repeats, all of them in one folder at the same time.
void lint_loop(const BatchScript& script, const RankStart& start, const Reach& reach,
               Findings& findings) {
  const ShellCommand& command = script.commands[start.command];
  if (reach.loops == 0 || command.end != "&") return;
  const auto last = script.commands.begin() + static_cast<std::ptrdiff_t>(reach.done);
  const bool waits =
      std::any_of(script.commands.begin() + static_cast<std::ptrdiff_t>(start.command), last,
                  [](const ShellCommand& one) { return is_call(one, "wait"); });
  const auto out = start.argument("out");
  if (waits || !out || out->find_first_of("${") != out->npos) return;
  findings.error(start.line, "loop",
                 "the loop starts several trainings in this folder at the same time: put what "
                 "differs into the name of --out");
}

/// scontrol requeue that is always reached, also when the training is done, or after any failure.
void lint_endless(const BatchScript& script, const std::vector<Reach>& reach, Findings& findings) {
  for (std::size_t i = 0; i < script.commands.size(); ++i) {
    const ShellCommand& command = script.commands[i];
    const bool requeues = is_call(command, "scontrol") &&
                          std::ranges::find(command.words, "requeue") != command.words.end();
    if (!requeues || reach[i].conditions > 0 || script.names.in_function(i)) continue;
    const std::string before = i == 0 ? "" : script.commands[i - 1].end;
    const bool decided = before == "&&" || before == "||" || before == "(" || before == ")";
    const bool may_exit = std::any_of(script.commands.begin(),
                                      script.commands.begin() + static_cast<std::ptrdiff_t>(i),
                                      [](const ShellCommand& one) { return is_call(one, "exit"); });
    const auto starts_before = [i](const RankStart& start) { return start.command + 1 == i; };
    const bool after_failures =
        before == "||" && (is_call(script.commands[i - 1], "wait") ||
                           std::ranges::any_of(script.starts, starts_before));
    if ((!decided && !may_exit) || after_failures)
      findings.error(command.line, "requeue",
                     "the job is started again for ever, also where it fails again (status 1 or "
                     "2): requeue it only for the statuses 3 and 4");
  }
}

/// The number of a task of an array, given to a command that changes jobs: the last task's is that
/// of the array, and means all tasks.
void lint_array_number(const BatchScript& script, Findings& findings) {
  const bool array = script.directive("array") ||
                     std::ranges::any_of(script.commands, [](const ShellCommand& command) {
                       return std::ranges::any_of(command.words, [](const std::string& word) {
                         return word.find("SLURM_ARRAY_TASK_ID") != word.npos;
                       });
                     });
  if (!array) return;
  const auto has = [](const ShellCommand& command, std::string_view word) {
    return std::ranges::find(command.words, word) != command.words.end();
  };
  for (const ShellCommand& command : script.commands)
    if ((is_call(command, "scancel") || (is_call(command, "scontrol") && !has(command, "show"))) &&
        (has(command, "$SLURM_JOB_ID") || has(command, "${SLURM_JOB_ID}")))
      findings.error(command.line, "array",
                     "in the last task of an array $SLURM_JOB_ID is the number of the array, so "
                     "this is done to all tasks: write ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID");
}

bool is_program(const ShellCommand& command) {
  const std::size_t at = program_in(command.words);
  if (at == command.words.size()) return false;
  const std::string& word = command.words[at];
  return word.ends_with("lockstep") || word.find("LOCKSTEP") != word.npos;
}

}  // namespace

void lint_flow(const BatchScript& script, Findings& findings) {
  const std::vector<Reach> reach = reaches(script);
  for (const RankStart& start : script.starts)
    if (start.trains()) lint_loop(script, start, reach[start.command], findings);
  lint_endless(script, reach, findings);
  lint_array_number(script, findings);
  const bool starts = std::ranges::any_of(script.starts, &RankStart::starts_lockstep) ||
                      std::ranges::any_of(script.commands, is_program);
  if (!starts)
    findings.warning(0, "start",
                     "no start of lockstep was found, so what it is given was not checked");
}

}  // namespace lockstep::cluster
