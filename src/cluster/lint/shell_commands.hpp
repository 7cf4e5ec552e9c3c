#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// One simple command of a shell script: the words between two separators, without their quotes.
/// Variables and substitutions are left as they are written.
struct ShellCommand {
  std::size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> words;
  std::string end;  ///< the separator after it: "\n", ";", "&", "&&", "|", "||", "(", ")"; or none
};

/// The commands of a script, in order, without comments and here-documents. It knows only as much
/// of the shell as batch scripts need: an array's words also count as a command.
std::vector<ShellCommand> shell_commands(std::string_view script);

/// The index of the program in `words`: after assignments, keywords, and `exec`, `timeout 60` and
/// the like. words.size() when there is no program.
std::size_t program_in(const std::vector<std::string>& words);

}  // namespace lockstep::cluster
