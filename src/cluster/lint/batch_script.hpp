#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/lint/lint.hpp"

namespace lockstep::cluster {

enum class SlurmProgram { sbatch, srun };

enum class OptionArgument { none, optional, required };

struct SlurmOption {
  std::string_view name;  ///< without dashes
  char letter;            ///< 0: it has no letter
  OptionArgument argument;
};

/// The option of this name; or, as in getopt, the only one whose name begins with it.
const SlurmOption* find_option(SlurmProgram program, std::string_view name);
const SlurmOption* find_option(SlurmProgram program, char letter);

/// The option whose name differs from `name` by two letters or fewer; empty when there is none.
std::string_view similar_option(SlurmProgram program, std::string_view name);

/// Options by their long names, and the place of the program that srun starts.
struct ParsedOptions {
  std::map<std::string, std::string, std::less<>> values;
  std::size_t program = 0;  ///< index of the first word that is not an option
  std::string unknown;      ///< as it was written; reading ended there
  std::string lacking;      ///< the option whose value is missing
};
ParsedOptions parse_options(SlurmProgram program, const std::vector<std::string>& words,
                            std::size_t first);

/// A value of --mem and the like in MB; nothing for a text that Slurm does not accept.
std::optional<double> read_memory_mb(std::string_view text);

/// "4", "h100:4" and "a100:2,h100:2" are 4; nothing for other texts.
std::optional<long> read_gpu_count(std::string_view text);

/// Collects findings. Line 0 is the whole script.
class Findings {
 public:
  void error(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::error, std::move(rule), std::move(text)});
  }
  void warning(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::warning, std::move(rule), std::move(text)});
  }
  void note(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::note, std::move(rule), std::move(text)});
  }
  std::vector<Finding> take() { return std::move(all_); }

 private:
  std::vector<Finding> all_;
};

/// The lines after a command with <<MARK.
struct HereDocument {
  std::size_t line = 0;  ///< of its first line
  std::string text;
  bool plain = false;  ///< its mark was quoted: $ has no meaning in it
};

/// One simple command of a shell script: the words between two separators, without their quotes.
/// Variables and substitutions are left as they are written.
struct ShellCommand {
  std::size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> words;
  std::string end;  ///< the separator after it: "\n", ";", "&", "&&", "|", "||", "(", ")"; or none
  std::vector<HereDocument> documents;  ///< of the line that the command ends
  std::vector<std::size_t> blank_ends;  ///< lines with a blank after the backslash at their end
};

/// The commands of a script, in order, without comments. It knows only as much
/// of the shell as batch scripts need: an array's words also count as a command. A line that ends
/// in a backslash and a blank is read as it was meant.
std::vector<ShellCommand> shell_commands(std::string_view script);

/// The index of the program in `words`: after assignments, keywords, and `exec`, `timeout 60` and
/// the like. words.size() when there is no program.
std::size_t program_in(const std::vector<std::string>& words);

/// A function of a script: the numbers of its first command and of the one after its last.
struct ShellFunction {
  std::size_t first = 0, end = 0;
};

/// What a script defines and later uses by name.
struct ShellNames {
  std::map<std::string, ShellFunction, std::less<>> functions;
  std::map<std::string, std::vector<std::string>, std::less<>> values;  ///< words of a variable
  /// Those that are set once, in any case, and written out.
  std::map<std::string, std::vector<std::string>, std::less<>> fixed;

  /// Whether this command is part of a function's body.
  bool in_function(std::size_t command) const;
};
ShellNames names_in(const std::vector<ShellCommand>& commands);

/// The words with a variable in the program's place ($LAUNCH, "${launch[@]}") replaced by its
/// value, if the script sets it.
std::vector<std::string> with_launcher(std::vector<std::string> words, const ShellNames& names);

/// The words with a fixed variable's value in its place: $DATA, ${DATA}/train, --out=$RUN,
/// "${options[@]}".
std::vector<std::string> with_values(const std::vector<std::string>& words,
                                     const ShellNames& names);

/// The words with "$@" and the like replaced by `arguments`, and $1 by the first of them.
std::vector<std::string> with_arguments(const std::vector<std::string>& words,
                                        const std::vector<std::string>& arguments);

/// An option's value in a script, and its line.
struct Setting {
  std::size_t line = 0;
  std::string value;
};

inline std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Whether it is lockstep's path, or a variable named after it.
bool is_lockstep(const std::string& word);

enum class Starter { srun, mpirun };

/// A place where the script starts ranks.
struct RankStart {
  std::size_t command = 0;  ///< its number in BatchScript::commands
  std::size_t line = 0;
  Starter starter = Starter::srun;
  std::map<std::string, std::string, std::less<>> options;  ///< by long names, without dashes
  std::vector<std::string> program;                         ///< and its arguments
  bool background = false;                                  ///< the script continues meanwhile

  bool has(std::string_view option) const { return options.contains(option); }
  /// Whether it starts lockstep, if the script shows that.
  bool starts_lockstep() const;
  /// Whether it starts this command of lockstep.
  bool starts(std::string_view what) const;
  bool trains() const { return starts("train"); }
  /// The value of one of lockstep's options, --name; nothing when it is not given.
  std::optional<std::string> argument(std::string_view name) const;
  /// Whether arguments come from variables or a file, where an option may be hidden.
  bool has_unseen_arguments() const;
};

struct BatchScript {
  std::map<std::string, Setting, std::less<>> directives;  ///< of #SBATCH, by long names
  std::vector<ShellCommand> commands;
  std::vector<RankStart> starts;
  ShellNames names;
  bool plain_sh = false;  ///< its shell is sh

  const Setting* directive(std::string_view name) const;
  /// A directive's value, if it is a number.
  std::optional<long> number(std::string_view name) const;
  /// The line of a directive; 0 when it is not given.
  std::size_t line_of(std::string_view name) const;
  /// How many tasks the job has, if the script says that.
  std::optional<long> tasks() const;
  /// The number of the last command of the pipe that command `number` begins.
  std::size_t last_of_pipe(std::size_t number) const;
  /// Whether any command has this word.
  bool mentions(std::string_view word) const;
  /// Whether any command sets this variable, for itself or for all.
  bool sets(std::string_view variable) const;
  bool asks_for_gpus() const;
  bool stops_at_errors() const;  ///< set -e
  /// Whether Slurm may start the job again: by --requeue, or by the script's scontrol.
  bool requeues() const;
};

/// Reads the script as sbatch does; adds to `findings` what it cannot read.
BatchScript read_batch_script(std::string_view text, Findings& findings);

/// The rules: for what the job asks for, for how it starts its ranks, and for how it ends.
void lint_resources(const BatchScript& script, Findings& findings);
void lint_starts(const BatchScript& script, const LintContext& context, Findings& findings);
void lint_ending(const BatchScript& script, Findings& findings);
/// What the script gives to lockstep: TOML, threads, GPUs, folders, arrays' values.
void lint_values(const BatchScript& script, const LintContext& context, Findings& findings);
/// What it exports: traps of clusters (cluster/traps).
void lint_traps(const BatchScript& script, Findings& findings);
/// The commands of lockstep: what it would say itself.
void lint_calls(const BatchScript& script, const LintContext& context, Findings& findings);
/// Starts in loops, jobs that are started again without end, and scripts without a start.
void lint_flow(const BatchScript& script, Findings& findings);

}  // namespace lockstep::cluster
