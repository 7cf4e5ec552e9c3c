#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

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
};

/// The commands of a script, in order, without comments. It knows only as much
/// of the shell as batch scripts need: an array's words also count as a command.
std::vector<ShellCommand> shell_commands(std::string_view script);

/// The index of the program in `words`: after assignments, keywords, and `exec`, `timeout 60` and
/// the like. words.size() when there is no program.
std::size_t program_in(const std::vector<std::string>& words);

}  // namespace lockstep::cluster
