#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/lint/shell_commands.hpp"

namespace lockstep::cluster {

/// A function of a script: the numbers of its first command and of the one after its last.
struct ShellFunction {
  std::size_t first = 0, end = 0;
};

/// What a script defines and later uses by name.
struct ShellNames {
  std::map<std::string, ShellFunction, std::less<>> functions;
  std::map<std::string, std::vector<std::string>, std::less<>> values;  ///< words of a variable

  /// Whether this command is part of a function's body.
  bool in_function(std::size_t command) const;
};
ShellNames names_in(const std::vector<ShellCommand>& commands);

/// The words with a variable in the program's place ($LAUNCH, "${launch[@]}") replaced by its
/// value, if the script sets it.
std::vector<std::string> with_launcher(std::vector<std::string> words, const ShellNames& names);

/// The words with "$@" and the like replaced by `arguments`, and $1 by the first of them.
std::vector<std::string> with_arguments(const std::vector<std::string>& words,
                                        const std::vector<std::string>& arguments);

}  // namespace lockstep::cluster
