#include "cluster/lint/batch_script.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return (x | 32) == (y | 32); });
}

/// "# SBATCH --time=5", "#sbatch --time=5" and the like: meant for sbatch, which ignores it.
bool almost_directive(std::string_view line) {
  const std::string_view rest = trimmed(line.substr(1));
  const std::size_t end = std::min(rest.find_first_of(" \t:"), rest.size());
  const std::string_view word = rest.substr(0, end);
  const std::string_view behind = trimmed(rest.substr(end));
  const bool attached = line.size() > 1 && line[1] != ' ' && line[1] != '\t';
  return behind.starts_with('-') &&
         (word == "SBATCH" || (attached && same_letters(word, "SBATCH")));
}

class ScriptReader {
 public:
  ScriptReader(std::string_view text, Findings& findings) : text_(text), findings_(findings) {}

  BatchScript read() {
    read_directives();
    script_.commands = shell_commands(text_);
    script_.names = names_in(script_.commands);
    for (std::size_t i = 0; i < script_.commands.size(); ++i)
      read_start(i, with_launcher(script_.commands[i].words, script_.names));
    read_calls();
    return std::move(script_);
  }

 private:
  void read_directives() {
    bool commands_began = false;
    std::size_t line = 1;
    script_.plain_sh = text_.starts_with("#!/bin/sh\n") || text_.starts_with("#!/bin/sh ");
    if (!text_.starts_with("#!"))
      findings_.error(1, "shebang",
                      "the script does not begin with #!: sbatch rejects it. Write #!/bin/bash");
    for (std::string_view rest = text_; !rest.empty(); ++line) {
      const std::string_view whole = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(whole.size() + 1, rest.size()));
      if (whole.starts_with("#SBATCH ") || whole.starts_with("#SBATCH\t"))
        read_directive(line, whole.substr(8), commands_began);
      else if (const auto bare = trimmed(whole); bare.starts_with('#') && almost_directive(bare))
        findings_.warning(
            line, "spelling",
            "sbatch ignores this line: it reads lines that begin with \"#SBATCH \", in capitals "
            "and without a space before");
      else if (!bare.empty() && !bare.starts_with('#'))
        commands_began = true;
    }
  }

  void read_directive(std::size_t line, std::string_view text, bool commands_began) {
    if (commands_began)
      return findings_.error(line, "ignored",
                             "sbatch reads no #SBATCH line after the first command: move it up");
    const auto commands = shell_commands(text);
    if (commands.empty()) return;
    const auto& words = commands.front().words;
    const ParsedOptions parsed = parse_options(SlurmProgram::sbatch, words, 0);
    for (const auto& [name, value] : parsed.values) keep(line, name, value);
    report(line, parsed, SlurmProgram::sbatch);
    if (parsed.unknown.empty() && parsed.program < words.size())
      findings_.error(line, "option",
                      fmt::format("\"{}\" is not an option: sbatch ignores it and what follows",
                                  words[parsed.program]));
  }

  void keep(std::size_t line, const std::string& name, const std::string& value) {
    const Setting* before = script_.directive(name);
    if (before && before->value != value)
      findings_.warning(
          line, "twice",
          fmt::format("--{} has another value in line {}; this one counts", name, before->line));
    script_.directives[name] = {line, value};
  }

  void report(std::size_t line, const ParsedOptions& parsed, SlurmProgram program) {
    const char* who = program == SlurmProgram::sbatch ? "sbatch" : "srun";
    if (!parsed.lacking.empty())
      findings_.error(line, "option", fmt::format("--{} needs a value", parsed.lacking));
    if (parsed.unknown.empty()) return;
    const bool is_long = parsed.unknown.starts_with("--");
    const std::string_view near =
        is_long ? similar_option(program, parsed.unknown.substr(2)) : std::string_view();
    if (!near.empty() || !is_long)
      findings_.error(line, "option",
                      fmt::format("{} has no option {}{}", who, parsed.unknown,
                                  near.empty() ? "" : fmt::format("; --{}?", near)));
    else
      findings_.warning(line, "option",
                        fmt::format("{} has no option {}, unless a plugin of this cluster adds it",
                                    who, parsed.unknown));
  }

  /// Calls of functions that start ranks: the start is where the call is, with its arguments.
  void read_calls() {
    std::vector<RankStart> of_functions, others;
    for (RankStart& start : script_.starts)
      (script_.names.in_function(start.command) ? of_functions : others)
          .push_back(std::move(start));
    std::vector<bool> called(of_functions.size());
    for (std::size_t i = 0; i < script_.commands.size(); ++i) {
      const ShellCommand& call = script_.commands[i];
      const std::size_t at = program_in(call.words);
      const auto function = at < call.words.size() ? script_.names.functions.find(call.words[at])
                                                   : script_.names.functions.end();
      if (function == script_.names.functions.end() || call.end == "(" ||
          script_.names.in_function(i))
        continue;
      const std::vector<std::string> arguments(
          call.words.begin() + static_cast<std::ptrdiff_t>(at) + 1, call.words.end());
      for (std::size_t j = 0; j < of_functions.size(); ++j) {
        const std::size_t inside = of_functions[j].command;
        if (inside < function->second.first || inside >= function->second.end) continue;
        called[j] = true;
        RankStart start = of_functions[j];
        start.program = with_arguments(start.program, arguments);
        start.command = i;
        start.line = call.line;
        start.background = start.background || continues_after(i);
        others.push_back(std::move(start));
      }
    }
    for (std::size_t j = 0; j < of_functions.size(); ++j)
      if (!called[j]) others.push_back(std::move(of_functions[j]));
    script_.starts = std::move(others);
  }

  bool continues_after(std::size_t number) const {
    return script_.commands[script_.last_of_pipe(number)].end == "&";
  }

  /// `words`: of that command, with its launcher's name replaced by what it stands for.
  void read_start(std::size_t number, const std::vector<std::string>& words) {
    const ShellCommand& command = script_.commands[number];
    const std::size_t at = program_in(words);
    if (at == words.size() || is_value(number)) return;
    const std::string name = file_name(words[at]);
    RankStart start;
    start.command = number;
    start.line = command.line;
    start.background = continues_after(number);
    if (name == "srun") {
      ParsedOptions parsed = parse_options(SlurmProgram::srun, words, at + 1);
      report(command.line, parsed, SlurmProgram::srun);
      start.options = std::move(parsed.values);
      start.program.assign(words.begin() + static_cast<std::ptrdiff_t>(parsed.program),
                           words.end());
    } else if (name == "mpirun" || name == "mpiexec" || name == "orterun") {
      start.starter = Starter::mpirun;
      read_mpirun(words, at + 1, start);
    } else {
      return;
    }
    script_.starts.push_back(std::move(start));
  }

  /// Whether this command is the list of an array, name=(...): it starts nothing.
  bool is_value(std::size_t number) const {
    if (number == 0 || script_.commands[number - 1].end != "(") return false;
    const std::string& before = script_.commands[number - 1].words.back();
    return before.ends_with('=') &&
           script_.names.values.contains(before.substr(0, before.size() - 1));
  }

  static void read_mpirun(const std::vector<std::string>& words, std::size_t at, RankStart& start) {
    static constexpr std::string_view with_value[] = {
        "-np",      "-n",        "-c",       "--np",       "--n",       "--bind-to",
        "--map-by", "--rank-by", "-H",       "--host",     "-host",     "--hostfile",
        "-x",       "-hostfile", "-wdir",    "--wdir",     "--timeout", "-machinefile",
        "-N",       "-npernode", "--prefix", "--npernode", "-bind-to",  "-map-by"};
    for (; at < words.size() && words[at].starts_with('-'); ++at) {
      const std::string& word = words[at];
      const std::string name = word.substr(word.find_first_not_of('-'));
      const bool counts = name == "np" || name == "n" || name == "c";
      if (name == "mca" || name == "gmca") {
        at += 2;
      } else if (std::ranges::find(with_value, word) != std::end(with_value)) {
        if (at + 1 < words.size()) start.options[counts ? "ntasks" : name] = words[at + 1];
        ++at;
      } else {
        start.options[name] = "";
      }
    }
    for (; at < words.size(); ++at) start.program.push_back(words[at]);
  }

  std::string_view text_;
  Findings& findings_;
  BatchScript script_;
};

}  // namespace

bool is_lockstep(const std::string& word) {
  const bool variable = word.starts_with('$') && word.find("LOCKSTEP") != word.npos;
  return variable || word == "lockstep" || word.ends_with("/lockstep");
}

const Setting* BatchScript::directive(std::string_view name) const {
  const auto found = directives.find(name);
  return found == directives.end() ? nullptr : &found->second;
}

std::optional<long> BatchScript::number(std::string_view name) const {
  const Setting* setting = directive(name);
  return setting ? whole_number<long>(setting->value) : std::nullopt;
}

std::size_t BatchScript::line_of(std::string_view name) const {
  const Setting* setting = directive(name);
  return setting ? setting->line : 0;
}

std::optional<long> BatchScript::tasks() const {
  if (const auto given = number("ntasks")) return given;
  const auto nodes = directive("nodes") ? number("nodes") : 1;
  const auto each = directive("ntasks-per-node") ? number("ntasks-per-node") : 1;
  if (!nodes || !each || directive("ntasks") || directive("ntasks-per-gpu")) return std::nullopt;
  return *nodes * *each;
}

std::size_t BatchScript::last_of_pipe(std::size_t number) const {
  while (commands[number].end == "|" && number + 1 < commands.size()) ++number;
  return number;
}

bool BatchScript::mentions(std::string_view word) const {
  return std::ranges::any_of(commands, [&](const ShellCommand& command) {
    return std::ranges::find(command.words, word) != command.words.end();
  });
}

bool BatchScript::sets(std::string_view variable) const {
  const std::string begin = fmt::format("{}=", variable);
  return std::ranges::any_of(commands, [&](const ShellCommand& command) {
    return std::ranges::any_of(command.words,
                               [&](const std::string& word) { return word.starts_with(begin); });
  });
}

bool BatchScript::asks_for_gpus() const {
  const Setting* gres = directive("gres");
  return directive("gpus") || directive("gpus-per-node") || directive("gpus-per-task") ||
         (gres && gres->value.find("gpu") != std::string::npos);
}

bool BatchScript::stops_at_errors() const {
  return std::ranges::any_of(commands, [](const ShellCommand& command) {
    const std::size_t at = program_in(command.words);
    return at < command.words.size() && command.words[at] == "set" &&
           std::ranges::any_of(command.words, [](const std::string& word) {
             return word == "errexit" || (word.starts_with('-') && word.find('e') != word.npos);
           });
  });
}

bool BatchScript::requeues() const {
  return directive("requeue") || (mentions("scontrol") && mentions("requeue"));
}

bool RankStart::starts_lockstep() const {
  return program.empty() || std::ranges::any_of(program, is_lockstep);
}

bool RankStart::starts(std::string_view what) const {
  for (std::size_t i = 0; i + 1 < program.size(); ++i)
    if (program[i + 1] == what && is_lockstep(program[i])) return true;
  return false;
}

std::optional<std::string> RankStart::argument(std::string_view name) const {
  const std::string option = fmt::format("--{}", name);
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i] == option) return i + 1 < program.size() ? program[i + 1] : "";
    if (program[i].starts_with(option + "=")) return program[i].substr(option.size() + 1);
  }
  return std::nullopt;
}

bool RankStart::has_unseen_arguments() const {
  const auto train = std::ranges::find(program, "train");
  return std::any_of(train, program.end(),
                     [](const std::string& word) { return word.starts_with('$'); }) ||
         argument("config");
}

BatchScript read_batch_script(std::string_view text, Findings& findings) {
  return ScriptReader(text, findings).read();
}

}  // namespace lockstep::cluster
