#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/lint/findings.hpp"
#include "cluster/lint/shell_commands.hpp"

namespace lockstep::cluster {

/// An option that stands in a script, and where.
struct Setting {
  std::size_t line = 0;
  std::string value;
};

enum class Starter { srun, mpirun };

/// A place where the script starts ranks.
struct RankStart {
  std::size_t command = 0;  ///< its number in BatchScript::commands
  std::size_t line = 0;
  Starter starter = Starter::srun;
  std::map<std::string, std::string, std::less<>> options;  ///< by long names, without dashes
  std::vector<std::string> program;                         ///< and its arguments

  bool has(std::string_view option) const { return options.contains(option); }
  /// Whether it starts lockstep, as far as the script shows.
  bool starts_lockstep() const;
  /// Whether it starts `lockstep train`.
  bool trains() const;
  /// The value of one of lockstep's options, --name; nothing where it does not stand there.
  std::optional<std::string> argument(std::string_view name) const;
  /// Whether arguments stand in variables or in a file, so that one may be given unseen.
  bool has_unseen_arguments() const;
};

struct BatchScript {
  std::map<std::string, Setting, std::less<>> directives;  ///< of #SBATCH, by long names
  std::vector<ShellCommand> commands;
  std::vector<RankStart> starts;

  const Setting* directive(std::string_view name) const;
  /// A directive's number, where it is one.
  std::optional<long> number(std::string_view name) const;
  /// The line of a directive; 0 where it does not stand.
  std::size_t line_of(std::string_view name) const;
  /// Whether any command has this word.
  bool mentions(std::string_view word) const;
  /// Whether any command sets this variable, for itself or for all.
  bool sets(std::string_view variable) const;
  bool asks_for_gpus() const;
  /// Whether Slurm is to start the job anew: by --requeue, or by the script's own scontrol.
  bool requeues() const;
};

/// Reads what sbatch would; adds to `findings` what it cannot read.
BatchScript read_batch_script(std::string_view text, Findings& findings);

/// The rules: of what the job asks for, of how it starts its ranks, and of how it ends.
void lint_resources(const BatchScript& script, Findings& findings);
void lint_starts(const BatchScript& script, Findings& findings);
void lint_ending(const BatchScript& script, Findings& findings);

}  // namespace lockstep::cluster
