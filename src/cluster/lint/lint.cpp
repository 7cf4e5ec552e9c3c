#include "lockstep/cluster/lint/lint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/lint/batch_script.hpp"

namespace lockstep::cluster {

namespace {

std::string without_dos_ends(std::string_view text, Findings& findings) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] != '\r' || at + 1 == text.size() || text[at + 1] != '\n') plain += text[at];
  if (plain.size() < text.size())
    findings.error(1, "line-ends",
                   "the script has DOS line ends, which sbatch rejects: sed -i 's/\\r$//' SCRIPT "
                   "removes them");
  return plain;
}

}  // namespace

std::vector<Finding> lint_batch_script(std::string_view text, const LintContext& context) {
  Findings findings;
  const std::string plain = without_dos_ends(text, findings);
  const BatchScript script = read_batch_script(plain, findings);
  lint_resources(script, findings);
  lint_starts(script, context, findings);
  lint_ending(script, findings);
  lint_values(script, context, findings);
  lint_traps(script, findings);
  lint_calls(script, context, findings);
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

/// The name of a program that starts other programs' ranks, where this command starts lockstep by
/// it; else empty.
std::string other_launcher(const ShellCommand& command) {
  const std::size_t at = program_in(command.words);
  if (at == command.words.size() || !std::ranges::any_of(command.words, is_lockstep)) return "";
  const std::string name = file_name(command.words[at]);
  for (const std::string_view other : {"torchrun", "accelerate", "deepspeed", "horovodrun"})
    if (name == other) return name;
  for (const std::string& word : command.words)
    if (name.starts_with("python") && word.starts_with("torch.distributed.")) return word;
  return "";
}

bool names_lockstep(const ShellCommand& command) {
  const std::size_t at = program_in(command.words);
  return at < command.words.size() && is_lockstep(command.words[at]);
}

void lint_launchers(const BatchScript& script, Findings& findings) {
  bool starts = std::ranges::any_of(script.starts, &RankStart::starts_lockstep) ||
                std::ranges::any_of(script.commands, names_lockstep);
  for (const ShellCommand& command : script.commands) {
    const std::string name = other_launcher(command);
    if (name.empty()) continue;
    starts = true;
    findings.error(command.line, "launcher",
                   fmt::format("{} tells lockstep's processes nothing of each other: start ranks "
                               "by srun or mpirun",
                               name));
  }
  if (!starts)
    findings.warning(0, "start",
                     "no start of lockstep was found, so what it is given was not checked");
}

/// What bash reads in another way than it looks, or sh does not know.
void lint_shell(const BatchScript& script, Findings& findings) {
  for (const ShellCommand& command : script.commands) {
    for (const std::size_t line : command.blank_ends)
      findings.error(line, "blank",
                     "a blank follows the backslash, so the command ends here, and the next line "
                     "is another one: remove the blank");
    if (script.plain_sh && is_call(command, "source"))
      findings.warning(command.line, "source",
                       "sh need not know source: write #!/bin/bash in the first line");
  }
}

}  // namespace

void lint_flow(const BatchScript& script, Findings& findings) {
  const std::vector<Reach> reach = reaches(script);
  for (const RankStart& start : script.starts)
    if (start.trains()) lint_loop(script, start, reach[start.command], findings);
  lint_endless(script, reach, findings);
  lint_array_number(script, findings);
  lint_launchers(script, findings);
  lint_shell(script, findings);
}

}  // namespace lockstep::cluster
