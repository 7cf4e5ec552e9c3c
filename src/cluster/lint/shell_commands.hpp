#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// One simple command of a shell script: the words between two separators, without their quotes.
/// Variables and substitutions stand as they were written.
struct ShellCommand {
  std::size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> words;
  std::string end;  ///< the separator behind it: "\n", ";", "&", "&&", "|", "||", "(", ")"; or none
};

/// The commands of a script, in its order; comments and here-documents are left out. It knows as
/// much of the shell as batch scripts need: an array's words count as a command, too.
std::vector<ShellCommand> shell_commands(std::string_view script);

/// Where the program stands in `words`: behind assignments, keywords, and `exec`, `timeout 60` and
/// the like. words.size(): nowhere.
std::size_t program_in(const std::vector<std::string>& words);

}  // namespace lockstep::cluster
