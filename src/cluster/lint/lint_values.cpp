#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

/// Each --option of `lockstep train`, with the value that follows it.
void lint_options(const RankStart& start, const LintContext& context, Findings& findings) {
  const auto train = std::ranges::find(start.program, "train");
  if (!context.fault_of_option || train == start.program.end()) return;
  for (auto word = train + 1; word != start.program.end(); ++word) {
    if (!word->starts_with("--") || *word == "--") continue;
    const std::size_t equals = std::min(word->find('='), word->size());
    const std::string name = word->substr(2, equals - 2);
    std::optional<std::string> value;
    if (equals < word->size())
      value = word->substr(equals + 1);
    else if (word + 1 != start.program.end() && !(word + 1)->starts_with("--"))
      value = *(word + 1);
    if (!is_literal(name)) continue;
    if (value && !is_literal(*value)) value.reset();
    const std::string fault = context.fault_of_option(name, value);
    if (!fault.empty()) findings.error(start.line, "lockstep", fault);
  }
}

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
  for (const RankStart& start : script.starts) {
    if (!start.trains()) continue;
    lint_options(start, context, findings);
    lint_threads(script, start, findings);
  }
  lint_toml(script, context, findings);
  lint_visible_gpus(script, findings);
  lint_folders(script, context, findings);
  lint_array_values(script, findings);
}

namespace {

constexpr const char* rule = "files";

/// Where the job begins, written in full: what follows it.
std::string_view from_start(std::string_view path) {
  for (const std::string_view start : {"$SLURM_SUBMIT_DIR", "${SLURM_SUBMIT_DIR}"}) {
    if (path == start) return ".";
    if (path.starts_with(start) && path[start.size()] == '/') return path.substr(start.size() + 1);
  }
  return path;
}

/// Whether commands before this one go to another folder than the one in which lint looks.
bool is_elsewhere(const BatchScript& script, std::size_t before) {
  if (script.directive("chdir")) return true;
  std::string_view where = ".";
  for (std::size_t i = 0; i < before; ++i) {
    const std::vector<std::string>& words = script.commands[i].words;
    if (words[0] == "cd") where = words.size() == 2 ? from_start(words[1]) : "?";
  }
  return where != ".";
}

bool is_within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Whether a command before this one names the path, a folder above it or a file in it, and so may
/// make it. Trainings make no data.
bool may_be_made(const BatchScript& script, std::string_view path, std::size_t before) {
  for (std::size_t i = 0; i < before; ++i) {
    const bool trains = std::ranges::any_of(script.starts, [i](const RankStart& start) {
      return start.command == i && start.trains();
    });
    const std::vector<std::string>& words = script.commands[i].words;
    if (trains || words[0] == "cd") continue;
    for (std::string_view word : words) {
      if (const std::size_t name = word.find_first_not_of('>'); name != word.npos)
        word.remove_prefix(name);
      if (is_within(path, word) || is_within(word, path)) return true;
    }
  }
  return false;
}

/// Looks at the files that one start reads.
class StartedFiles {
 public:
  StartedFiles(const BatchScript& script, const RankStart& start, const LintContext& context,
               Findings& findings)
      : script_(script), start_(start), context_(context), findings_(findings) {}

  void look() {
    if (const auto config = start_.argument("config"); config && is_there("--config", *config)) {
      const LintContext::ConfigFile file = context_.read_config(std::string(from_start(*config)));
      if (!file.fault.empty()) findings_.error(start_.line, "lockstep", file.fault);
      for (const auto& [key, path] : file.inputs)
        if (!start_.argument(key)) is_there(fmt::format("{} in {}:", key, *config), path);
    }
    for (const std::string& key : context_.input_keys)
      if (const auto path = start_.argument(key)) is_there("--" + key, *path);
    const auto train = std::ranges::find(start_.program, "train");
    for (auto word = train; word != start_.program.end(); ++word)
      if (word->starts_with('$') && !(word - 1)->starts_with("--")) unseen_.push_back(*word);
    if (!unseen_.empty())
      findings_.note(start_.line, rule,
                     "not checked, because only the job knows it: " + join(unseen_, ", "));
  }

 private:
  /// True when it was looked at, and can be read.
  bool is_there(const std::string& what, const std::string& given) {
    const std::string path(from_start(given));
    if (path.empty()) return false;
    if (!is_literal(path) || (path[0] != '/' && is_elsewhere(script_, start_.command)) ||
        may_be_made(script_, path, start_.command)) {
      unseen_.push_back(fmt::format("{} {}", what, given));
      return false;
    }
    const std::string fault = context_.fault_of_path(path);
    if (!fault.empty())
      findings_.error(start_.line, rule, fmt::format("{} {}: {}", what, given, fault));
    return fault.empty();
  }

  const BatchScript& script_;
  const RankStart& start_;
  const LintContext& context_;
  Findings& findings_;
  std::vector<std::string> unseen_;
};

}  // namespace

void lint_paths(const BatchScript& script, const LintContext& context, Findings& findings) {
  if (!context.fault_of_path || !context.read_config) return;
  for (const RankStart& start : script.starts)
    if (start.trains()) StartedFiles(script, start, context, findings).look();
}

}  // namespace lockstep::cluster
