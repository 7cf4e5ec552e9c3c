#include <map>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/cluster/traps/traps.hpp"

namespace lockstep::cluster {
namespace {

/// What the script exports before it starts ranks, written out, and where.
struct ExportedVariables {
  Variables values;
  std::map<std::string, std::size_t, std::less<>> lines;
};

ExportedVariables exports_of(const BatchScript& script) {
  ExportedVariables all;
  for (const ShellCommand& command : script.commands) {
    const std::string& first = command.words.front();
    for (std::size_t i = 1; i < command.words.size(); ++i) {
      const std::string& word = command.words[i];
      const std::string name = word.substr(0, word.find('='));
      if (first == "unset") all.values.erase(name);
      if (first != "export" || name.size() == word.size() || !is_literal(word)) continue;
      all.values[name] = word.substr(name.size() + 1);
      all.lines[name] = command.line;
    }
  }
  return all;
}

/// The line of a variable that the finding names first; 0: it names none of the script's.
std::size_t line_of(const TrapFinding& finding, const ExportedVariables& all) {
  for (const auto& [name, line] : all.lines)
    if ((finding.text + finding.line).find(name) != std::string::npos) return line;
  return 0;
}

}  // namespace

void lint_traps(const BatchScript& script, Findings& findings) {
  ExportedVariables all = exports_of(script);
  const auto given = [&](const char* directive, const char* variable) {
    const Setting* one = script.directive(directive);
    if (!one || script.sets(variable)) return;
    all.values[variable] = one->value;
    all.lines[variable] = one->line;
  };
  given("export", "SLURM_EXPORT_ENV");
  NodeLook look;
  look.env = all.values;
  look.gpus = script.asks_for_gpus() ? 2 : 0;
  look.nodes = static_cast<int>(script.number("nodes").value_or(1));
  look.world = static_cast<int>(script.tasks().value_or(look.nodes));
  look.ranks_here = look.world > look.nodes ? 2 : 1;
  for (const TrapFinding& one : find_traps(look, TrapScope::settings))
    findings.warning(line_of(one, all), one.trap, one.text + ": " + one.line);
}

}  // namespace lockstep::cluster
