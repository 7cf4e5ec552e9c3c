#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

/// "run.toml" of ">runs/run.toml"
std::string last_part(const std::string& word) { return word.substr(word.find_last_of("/>|") + 1); }

/// Whether a start reads this file as its --config; the folder may be a variable.
bool is_config(const BatchScript& script, const std::string& file) {
  return std::ranges::any_of(script.starts, [&](const RankStart& start) {
    const auto config = start.argument("config");
    return config && last_part(*config) == last_part(file);
  });
}

/// The lines of a here-document without those that have variables; nothing where such a line is a
/// part of a longer value.
std::optional<std::string> literal_lines(const HereDocument& document) {
  std::istringstream lines(document.text);
  std::string judged;
  for (std::string line; std::getline(lines, line); judged += '\n') {
    const bool literal = document.plain || is_literal(line);
    const bool whole = line.find('=') != line.npos &&
                       std::ranges::count(line, '[') == std::ranges::count(line, ']');
    if (!literal && !whole) return std::nullopt;
    if (literal) judged += line;
  }
  return judged;
}

/// Here-documents that become a start's TOML.
void lint_toml(const BatchScript& script, const LintContext& context, Findings& findings) {
  if (!context.fault_of_toml) return;
  for (const ShellCommand& command : script.commands) {
    const bool toml = std::ranges::any_of(command.words, [&](const std::string& word) {
      return word.ends_with(".toml") && is_config(script, word);
    });
    if (!toml) continue;
    for (const HereDocument& document : command.documents) {
      const auto judged = literal_lines(document);
      const std::string fault = judged ? context.fault_of_toml(*judged) : "";
      if (!fault.empty()) findings.error(document.line, "lockstep", fault);
    }
  }
}

void lint_threads(const BatchScript& script, const RankStart& start, Findings& findings) {
  const auto threads = whole_number<long>(start.argument("threads").value_or(""));
  const auto own = start.options.find("cpus-per-task");
  const auto cpus = own != start.options.end() && is_literal(own->second)
                        ? whole_number<long>(own->second)
                        : script.number("cpus-per-task");
  if (threads && cpus && *threads > *cpus)
    findings.error(start.line, "threads",
                   fmt::format("--threads {} on the {} that a task has", *threads,
                               counted(static_cast<std::size_t>(*cpus), "core")));
}

/// Whether what this command sets holds for ranks: it sets it for all that follows, or starts them.
bool sets_for_ranks(const BatchScript& script, std::size_t number) {
  const std::vector<std::string>& words = script.commands[number].words;
  const std::size_t at = program_in(words);
  return at == words.size() || words[at] == "export" ||
         std::ranges::find(script.starts, number, &RankStart::command) != script.starts.end();
}

/// A list of GPUs that is set by hand holds for each rank.
void lint_visible_gpus(const BatchScript& script, Findings& findings) {
  const auto ranks = script.number("ntasks-per-node");
  constexpr std::string_view variable = "CUDA_VISIBLE_DEVICES=";
  for (std::size_t i = 0; i < script.commands.size(); ++i)
    for (const std::string& word : script.commands[i].words) {
      if (!sets_for_ranks(script, i)) break;
      if (!word.starts_with(variable) || !is_literal(word) || word.size() == variable.size())
        continue;
      const long gpus = std::count(word.begin(), word.end(), ',') + 1;
      if (ranks && *ranks > gpus)
        findings.error(script.commands[i].line, "gpus",
                       fmt::format("with {} the {} ranks of a node see {}: leave it to Slurm", word,
                                   *ranks, counted(static_cast<std::size_t>(gpus), "GPU")));
    }
}

/// Whether one of the commands before this one may make the folder: it names it, or unpacks.
bool may_make(const BatchScript& script, const std::string& folder, std::size_t before) {
  constexpr std::string_view makers[] = {"mkdir", "cp", "mv", "ln", "rsync", "install"};
  constexpr std::string_view unpackers[] = {"git", "tar", "unzip", "source", "."};
  for (std::size_t i = 0; i < before; ++i) {
    const std::vector<std::string>& words = script.commands[i].words;
    const std::size_t at = program_in(words);
    if (at == words.size()) continue;
    if (std::ranges::find(unpackers, words[at]) != std::end(unpackers)) return true;
    const bool makes = std::ranges::find(makers, words[at]) != std::end(makers);
    const bool names = std::ranges::any_of(words, [&](const std::string& word) {
      return word == folder || word.starts_with(folder + "/") || (makes && !is_literal(word));
    });
    if (names && words[at] != "cd") return true;
  }
  return false;
}

void lint_folders(const BatchScript& script, const LintContext& context, Findings& findings) {
  if (!context.is_folder) return;
  const bool elsewhere = script.directive("chdir") != nullptr;
  for (const char* option : {"output", "error"}) {
    const Setting* file = script.directive(option);
    const std::size_t slash = file ? file->value.rfind('/') : std::string::npos;
    if (slash == std::string::npos || slash == 0) continue;
    const std::string folder = file->value.substr(0, slash);
    if (folder.find('%') != folder.npos || (elsewhere && folder[0] != '/')) continue;
    if (!context.is_folder(folder))
      findings.error(file->line, "folder",
                     fmt::format("there is no folder {} here: Slurm does not make it, and the job "
                                 "fails without a word",
                                 folder));
  }
  for (std::size_t i = 0; i < script.commands.size(); ++i) {
    const ShellCommand& command = script.commands[i];
    const bool goes = command.words.size() == 2 && command.words[0] == "cd";
    const bool judged = command.end == "||" || command.end == "&&" || script.stops_at_errors();
    if (!goes || judged || elsewhere || !is_literal(command.words[1])) continue;
    const std::string& folder = command.words[1];
    if (folder != "-" && !context.is_folder(folder) && !may_make(script, folder, i))
      findings.error(command.line, "folder",
                     fmt::format("there is no folder {} here, and the script continues elsewhere: "
                                 "cd {} || exit",
                                 folder, folder));
  }
}

/// The largest index of --array=0-5%2,9.
std::optional<long> last_index(std::string_view text) {
  std::optional<long> last;
  text = text.substr(0, text.find('%'));
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    part = part.substr(0, part.find(':'));
    if (const std::size_t dash = part.find('-'); dash != part.npos) part.remove_prefix(dash + 1);
    const auto index = whole_number<long>(part);
    if (!index) return std::nullopt;
    last = std::max(last.value_or(0), *index);
  }
  return last;
}

void lint_array_values(const BatchScript& script, Findings& findings) {
  const Setting* array = script.directive("array");
  const auto last = array ? last_index(array->value) : std::nullopt;
  if (!last) return;
  for (const auto& [name, values] : script.names.values) {
    const bool literal = std::ranges::all_of(values, [](const std::string& value) {
      return is_literal(value) && value.find('{') == value.npos;
    });
    const bool grows = script.mentions(name + "+=");
    if (!literal || grows || *last < static_cast<long>(values.size())) continue;
    const std::string uses[] = {fmt::format("${{{}[$SLURM_ARRAY_TASK_ID]}}", name),
                                fmt::format("${{{}[SLURM_ARRAY_TASK_ID]}}", name),
                                fmt::format("${{{}[${{SLURM_ARRAY_TASK_ID}}]}}", name)};
    for (const ShellCommand& command : script.commands)
      for (const std::string& word : command.words)
        for (const std::string& use : uses)
          if (word.find(use) != word.npos)
            return findings.error(
                array->line, "array",
                fmt::format("--array={} has the index {}, but {} has {} values (line {} takes one)",
                            array->value, *last, name, values.size(), command.line));
  }
}

}  // namespace

void lint_values(const BatchScript& script, const LintContext& context, Findings& findings) {
  for (const RankStart& start : script.starts)
    if (start.trains()) lint_threads(script, start, findings);
  lint_toml(script, context, findings);
  lint_visible_gpus(script, findings);
  lint_folders(script, context, findings);
  lint_array_values(script, findings);
}

}  // namespace lockstep::cluster
