#include <fmt/core.h>

#include <algorithm>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/join.hpp"

namespace lockstep::cluster {
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
