#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::cluster {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

/// "LAUNCH" of $LAUNCH, ${LAUNCH} and ${LAUNCH[@]}; empty for other texts.
std::string variable_of(std::string_view word) {
  if (!word.starts_with('$')) return "";
  word.remove_prefix(1);
  if (word.starts_with('{')) {
    if (!word.ends_with('}')) return "";
    word = word.substr(1, word.size() - 2);
    if (word.ends_with("[@]") || word.ends_with("[*]")) word.remove_suffix(3);
  }
  return is_name(word) ? std::string(word) : "";
}

/// Where the body that begins at `first` ends: at a command "}", or the last one.
std::size_t end_of_body(const std::vector<ShellCommand>& commands, std::size_t first) {
  for (std::size_t i = first; i < commands.size(); ++i)
    if (i > first && commands[i].words.front() == "}") return i;
  return commands.size();
}

/// name() { ... } or function name { ... }
void note_function(const std::vector<ShellCommand>& commands, std::size_t at, ShellNames& names) {
  const ShellCommand& one = commands[at];
  if (one.words.front() == "function" && one.words.size() > 1) {
    const std::size_t first = one.words.size() > 2 ? at : at + 1;
    names.functions[one.words[1]] = {first, end_of_body(commands, first)};
    return;
  }
  const bool opens = one.words.size() == 1 && one.end == "(" && is_name(one.words[0]);
  if (!opens || at + 1 >= commands.size() || commands[at + 1].words.front() != "{") return;
  names.functions[one.words[0]] = {at + 1, end_of_body(commands, at + 1)};
}

void note_values(const std::vector<ShellCommand>& commands, std::size_t at, ShellNames& names) {
  for (const std::string& word : commands[at].words) {
    if (word == "export" || word == "local" || word == "readonly") continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || !is_name(std::string_view(word).substr(0, equals))) return;
    const std::string name = word.substr(0, equals);
    if (equals + 1 < word.size() || commands[at].end != "(") {
      names.values[name] = split(word.substr(equals + 1));
      continue;
    }
    std::vector<std::string> list;  // of an array, which may have several lines
    for (std::size_t i = at + 1; i < commands.size(); ++i) {
      list.insert(list.end(), commands[i].words.begin(), commands[i].words.end());
      if (commands[i].end != "\n") break;
    }
    names.values[name] = std::move(list);
  }
}

/// Whether the command sets variables for all that follow.
bool only_sets(const ShellCommand& command) {
  const std::size_t at = program_in(command.words);
  return at == command.words.size() || command.words[at] == "export" ||
         command.words[at] == "readonly";
}

/// Leaves in `names.fixed` what no condition, loop or function sets, and nothing sets twice.
void note_fixed(const std::vector<ShellCommand>& commands, ShellNames& names) {
  std::map<std::string, int, std::less<>> times;
  int depth = 0;
  bool decided = false;  // by the command before
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::string& first = commands[i].words.front();
    if (first == "if" || first == "case" || first == "do") ++depth;
    if (first == "fi" || first == "esac" || first == "done") --depth;
    const bool always = depth == 0 && !decided && !names.in_function(i) && only_sets(commands[i]);
    decided = commands[i].end == "&&" || commands[i].end == "||" || commands[i].end == "|";
    for (const std::string& word : commands[i].words)
      if (const std::size_t equals = word.find('='); equals != word.npos && equals > 0)
        times[word.substr(0, equals - (word[equals - 1] == '+' ? 1 : 0))] += always ? 1 : 2;
  }
  for (const auto& [name, values] : names.values)
    if (times[name] == 1 && std::ranges::all_of(values, is_literal)) names.fixed[name] = values;
}

/// `text` with its first variable replaced, if that is followed by nothing or a slash.
std::string with_value(const std::string& text, const ShellNames& names) {
  const std::size_t end = std::min(text.find('/'), text.size());
  const auto value = names.fixed.find(variable_of(text.substr(0, end)));
  const bool one = value != names.fixed.end() && value->second.size() == 1;
  return one ? value->second.front() + text.substr(end) : text;
}

}  // namespace

bool ShellNames::in_function(std::size_t command) const {
  return std::any_of(functions.begin(), functions.end(), [command](const auto& one) {
    return command >= one.second.first && command < one.second.end;
  });
}

ShellNames names_in(const std::vector<ShellCommand>& commands) {
  ShellNames names;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    note_function(commands, i, names);
    note_values(commands, i, names);
  }
  note_fixed(commands, names);
  return names;
}

std::vector<std::string> with_launcher(std::vector<std::string> words, const ShellNames& names) {
  const std::size_t at = program_in(words);
  if (at == words.size()) return words;
  const auto value = names.values.find(variable_of(words[at]));
  if (value == names.values.end() || value->second.empty()) return words;
  const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
  words.insert(words.erase(place), value->second.begin(), value->second.end());
  return words;
}

std::vector<std::string> with_values(const std::vector<std::string>& words,
                                     const ShellNames& names) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const auto list = names.fixed.find(variable_of(word));
    const std::size_t equals = word.starts_with("--") ? word.find('=') + 1 : 0;
    if (list != names.fixed.end())
      all.insert(all.end(), list->second.begin(), list->second.end());
    else
      all.push_back(word.substr(0, equals) + with_value(word.substr(equals), names));
  }
  return all;
}

std::vector<std::string> with_arguments(const std::vector<std::string>& words,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const std::string name = word.starts_with("${") && word.ends_with('}')
                                 ? word.substr(2, word.size() - 3)
                                 : (word.starts_with('$') ? word.substr(1) : "");
    if (name == "@" || name == "*")
      all.insert(all.end(), arguments.begin(), arguments.end());
    else if (name.size() == 1 && name[0] >= '1' && name[0] <= '9' &&
             static_cast<std::size_t>(name[0] - '1') < arguments.size())
      all.push_back(arguments[static_cast<std::size_t>(name[0] - '1')]);
    else
      all.push_back(word);
  }
  return all;
}

namespace {

/// Whether the job may have more than one node.
bool many_nodes(const BatchScript& script) {
  return script.directive("nodes") && script.number("nodes") != 1;
}

/// Processes of predict and serve: they need no MPI, and do not end together.
void lint_workers(const RankStart& start, Findings& findings) {
  if (start.has("kill-on-bad-exit") && start.options.at("kill-on-bad-exit") != "0")
    findings.warning(start.line, "kill-on-bad-exit",
                     "a worker that is lost would end the others, which can finish its work: "
                     "leave out --kill-on-bad-exit");
}

/// srun of Slurm 22.05 to 23.02 takes no --cpus-per-task from the job.
void lint_cpus(const BatchScript& script, const RankStart& start, const LintContext& context,
               Findings& findings) {
  constexpr SlurmVersion first{22, 5}, first_after{23, 11};
  const Setting* cpus = script.directive("cpus-per-task");
  if (!cpus || cpus->value == "1" || start.has("cpus-per-task") ||
      script.sets("SRUN_CPUS_PER_TASK"))
    return;
  const auto slurm = context.slurm ? context.slurm() : std::nullopt;
  if (slurm && (*slurm < first || *slurm >= first_after)) return;
  const std::string text = fmt::format(
      "srun of Slurm 22.05 to 23.02 takes no --cpus-per-task from the job: {}the {} in line {} "
      "becomes 1. Write srun --cpus-per-task=\"$SLURM_CPUS_PER_TASK\"",
      slurm ? "" : "there ", cpus->value, cpus->line);
  if (slurm)
    findings.error(start.line, "cpus", text);
  else
    findings.warning(start.line, "cpus", text);
}

void lint_srun(const BatchScript& script, const RankStart& start, const LintContext& context,
               Findings& findings) {
  lint_cpus(script, start, context, findings);
  if (start.starts("predict") || start.starts("serve")) return lint_workers(start, findings);
  const auto mpi = start.options.find("mpi");
  if (mpi == start.options.end()) {
    if (!script.sets("SLURM_MPI_TYPE"))
      findings.warning(start.line, "mpi",
                       "srun without --mpi= takes the cluster's default, often none: write "
                       "--mpi=pmix");
  } else if ((mpi->second == "none" || mpi->second == "pmi2") && !script.asks_for_gpus()) {
    findings.warning(start.line, "mpi",
                     fmt::format("--mpi={} does not join Open MPI's ranks, which then communicate "
                                 "over TCP: write --mpi=pmix",
                                 mpi->second));
  }
  if (!start.has("kill-on-bad-exit"))
    findings.warning(start.line, "kill-on-bad-exit",
                     "a rank that is lost or stopped may leave others running: write srun "
                     "--kill-on-bad-exit=1");
}

void lint_mpirun(const BatchScript& script, const RankStart& start, Findings& findings) {
  const auto binding = start.options.find("bind-to");
  if (binding == start.options.end() || binding->second != "none")
    findings.warning(start.line, "binding",
                     "mpirun binds ranks to single cores: write --bind-to none; lockstep does the "
                     "binding");
  if (const Setting* given = script.directive("gpus-per-task"))
    findings.error(start.line, "gpus-per-task",
                   fmt::format("under mpirun --gpus-per-task (line {}) gives the nodes different "
                               "GPUs: write --gpus-per-node",
                               given->line));
  if (const Setting* given = script.directive("gpus"); given && many_nodes(script))
    findings.error(start.line, "gpus",
                   fmt::format("mpirun fails in a job with --gpus (line {}) on several nodes: "
                               "write --gpus-per-node",
                               given->line));
}

void lint_counts(const BatchScript& script, const RankStart& start, Findings& findings) {
  const auto given = start.options.find("ntasks");
  if (given == start.options.end()) return;
  const auto ranks = whole_number<long>(given->second), tasks = script.tasks();
  if (!ranks || !tasks || *ranks == *tasks) return;
  const char* who = start.starter == Starter::srun ? "srun" : "mpirun";
  if (*ranks > *tasks)
    findings.error(
        start.line, "tasks",
        fmt::format("{} ranks in a job of {} tasks: {} rejects that", *ranks, *tasks, who));
  else
    findings.warning(
        start.line, "tasks",
        fmt::format("{} ranks in a job of {} tasks: the rest is idle", *ranks, *tasks));
}

/// A start that resumes where an earlier one of the same job stopped.
void lint_resuming(const BatchScript& script, const RankStart& start, Findings& findings) {
  const auto out = start.argument("out"), resume = start.argument("resume");
  const bool unseen = start.has_unseen_arguments();
  if (script.requeues()) {
    if (!resume && !unseen)
      findings.error(start.line, "resume",
                     "a job that is started again begins its run again: write --resume auto");
    if (!out ? !unseen : out->find("{n}") != out->npos)
      findings.error(start.line, "resume",
                     "a job that is started again takes another folder: write --out with a name "
                     "for this job, such as runs/$SLURM_JOB_ID");
    if (start.argument("batch-per-rank"))
      findings.warning(start.line, "resume",
                       "with --batch-per-rank another number of ranks has another global batch, "
                       "with which a run cannot resume mid-epoch: write --batch");
  }
  if (script.directive("array") && out && out->find_first_of("${") == out->npos)
    findings.error(start.line, "array",
                   "all tasks of the array train into this folder: put $SLURM_ARRAY_TASK_ID into "
                   "its name");
}

/// A lockstep started without srun or mpirun is one rank, however many tasks the job has.
void lint_alone(const BatchScript& script, Findings& findings) {
  if (script.tasks().value_or(2) < 2) return;
  for (const ShellCommand& command : script.commands) {
    const std::size_t at = program_in(command.words);
    if (at + 1 >= command.words.size()) continue;
    const std::string name = file_name(command.words[at]);
    const std::string& what = command.words[at + 1];
    if ((name == "lockstep" || name == "lockstep}") && (what == "train" || what == "eval"))
      findings.error(command.line, "alone",
                     fmt::format("starts one rank, whatever the job asks for: srun --mpi=pmix {} "
                                 "{} ...",
                                 command.words[at], what));
  }
}

}  // namespace

void lint_starts(const BatchScript& script, const LintContext& context, Findings& findings) {
  for (const RankStart& start : script.starts) {
    if (!start.starts_lockstep()) continue;
    if (start.starter == Starter::srun)
      lint_srun(script, start, context, findings);
    else
      lint_mpirun(script, start, findings);
    lint_counts(script, start, findings);
    if (start.trains()) lint_resuming(script, start, findings);
  }
  lint_alone(script, findings);
}

}  // namespace lockstep::cluster
