#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

/// Where the job begins, written in full: what follows it.
std::string from_start(const std::string& path) {
  for (const std::string start : {"$SLURM_SUBMIT_DIR", "${SLURM_SUBMIT_DIR}"}) {
    if (path == start) return ".";
    if (path.starts_with(start + "/")) return path.substr(start.size() + 1);
  }
  return path;
}

/// A word of a command, also as the value in --name=value.
std::string seen_from_start(const std::string& word) {
  const std::size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
  if (equals == word.npos) return from_start(word);
  return word.substr(0, equals + 1) + from_start(word.substr(equals + 1));
}

/// What starts another program, whose name is among its words.
bool is_wrapper(const std::string& word) {
  constexpr std::array<std::string_view, 15> names{
      "apptainer", "singularity", "podman", "shifter", "numactl",  "taskset", "nsys", "ncu",
      "perf",      "strace",      "gdb",    "nice",    "valgrind", "stdbuf",  "env"};
  const std::string name = file_name(word);
  return name.ends_with(".sh") || std::ranges::find(names, name) != names.end();
}

/// The words after lockstep's name, without redirections; nothing where another program runs.
std::optional<std::vector<std::string>> words_of_call(const std::vector<std::string>& command) {
  const auto program = std::ranges::find_if(command, is_lockstep);
  if (program == command.end() || (program != command.begin() && !is_wrapper(command.front())))
    return std::nullopt;
  std::vector<std::string> words;
  for (auto word = program + 1; word != command.end(); ++word) {
    const std::size_t arrow = word->find_first_not_of("0123456789&");
    if (arrow == word->npos || ((*word)[arrow] != '>' && (*word)[arrow] != '<'))
      words.push_back(seen_from_start(*word));
    else if (word->find_first_not_of(">&|<", arrow) == word->npos && word + 1 != command.end())
      ++word;  // the file's name
  }
  return words;
}

struct Call {
  std::size_t command = 0, line = 0;
  ProgramCall program;
};

/// How many ranks a start has, if the script says that.
std::optional<int> ranks_of(const BatchScript& script, const RankStart& start) {
  const auto option = [&](const char* name) {
    const auto found = start.options.find(name);
    return found == start.options.end() ? std::nullopt : whole_number<long>(found->second);
  };
  std::optional<long> ranks = script.tasks();
  if (start.has("ntasks"))
    ranks = option("ntasks");
  else if (start.has("nodes") && start.has("ntasks-per-node"))
    ranks = option("nodes").value_or(0) * option("ntasks-per-node").value_or(0);
  else if (start.has("nodes") || start.has("ntasks-per-node") || start.has("N") ||
           start.has("npernode"))
    ranks = std::nullopt;
  constexpr long most = 1 << 24;
  if (!ranks || *ranks < 1 || *ranks > most) return std::nullopt;
  return static_cast<int>(*ranks);
}

std::vector<Call> calls_of(const BatchScript& script) {
  std::vector<Call> calls;
  const auto add = [&](std::size_t command, std::size_t line, const auto& words,
                       std::optional<int> ranks) {
    if (auto found = words_of_call(with_values(words, script.names)))
      calls.push_back({command, line, {.words = std::move(*found), .ranks = ranks, .shows = {}}});
  };
  for (const RankStart& start : script.starts)
    add(start.command, start.line, start.program, ranks_of(script, start));
  for (std::size_t i = 0; i < script.commands.size(); ++i) {
    const std::vector<std::string>& words = script.commands[i].words;
    const auto program = static_cast<std::ptrdiff_t>(program_in(words));
    add(i, script.commands[i].line, std::vector(words.begin() + program, words.end()), 1);
  }
  return calls;
}

bool is_within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// What a call writes: the values of its options, and where a training names none, what it then
/// takes.
std::vector<std::string> outputs_of(const std::vector<std::string>& words) {
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < words.size(); ++i)
    for (const std::string option : {"--out", "--to", "-o", "--json", "--json-file"}) {
      if (words[i] == option && i + 1 < words.size()) outputs.push_back(words[i + 1]);
      if (words[i].starts_with(option + "=")) outputs.push_back(words[i].substr(option.size() + 1));
    }
  if (outputs.empty()) outputs.emplace_back("runs");
  for (std::string& one : outputs)  // runs/a-{n}
    if (const std::size_t number = one.find("{n}"); number != one.npos)
      one.erase(std::min(one.rfind('/', number), number));
  return outputs;
}

/// Which files the job will find as they are now.
class SeenFiles {
 public:
  SeenFiles(const BatchScript& script, const std::vector<Call>& calls)
      : script_(script), calls_(calls) {}

  /// REQUIRES: `path` is as seen_from_start() gives it.
  bool shows(const std::string& path, std::size_t before) const {
    return is_literal(path) && (path.starts_with('/') || !is_elsewhere(before)) &&
           !may_be_made(path, before);
  }

 private:
  /// Whether commands before this one go to another folder than the one in which lint looks.
  bool is_elsewhere(std::size_t before) const {
    if (script_.directive("chdir")) return true;
    std::string where = ".";
    for (std::size_t i = 0; i < before; ++i) {
      const std::vector<std::string>& words = script_.commands[i].words;
      if (words[0] == "cd") where = words.size() == 2 ? from_start(words[1]) : "?";
    }
    return where != ".";
  }

  /// Whether a command before this one names the path, a folder above it or a file in it.
  bool may_be_made(const std::string& path, std::size_t before) const {
    for (std::size_t i = 0; i < before; ++i)
      for (const std::string& name : made_by(i)) {
        const std::size_t begin = name.find_first_not_of('>');
        const std::string_view made = std::string_view(name).substr(std::min(begin, name.size()));
        if (!made.empty() && (is_within(path, made) || is_within(made, path))) return true;
      }
    return false;
  }

  std::vector<std::string> made_by(std::size_t command) const {
    const auto call = std::ranges::find(calls_, command, &Call::command);
    if (call != calls_.end()) return outputs_of(call->program.words);
    const std::vector<std::string>& words = script_.commands[command].words;
    return words[0] == "cd" ? std::vector<std::string>() : words;
  }

  const BatchScript& script_;
  const std::vector<Call>& calls_;
};

}  // namespace

void lint_calls(const BatchScript& script, const LintContext& context, Findings& findings) {
  if (!context.faults_of_call) return;
  std::vector<Call> calls = calls_of(script);
  const SeenFiles files(script, calls);
  for (Call& call : calls) {
    call.program.shows = [&files, &call](const std::string& path) {
      return files.shows(path, call.command);
    };
    const CallFaults found = context.faults_of_call(call.program);
    for (const std::string& fault : found.faults) findings.error(call.line, "lockstep", fault);
    if (!found.unseen.empty())
      findings.note(call.line, "files",
                    "not checked, because only the job knows it: " + join(found.unseen, ", "));
  }
}

}  // namespace lockstep::cluster
