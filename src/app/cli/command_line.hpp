#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/arguments.hpp"

namespace lockstep::app {

/// The program's command line. CLI11 reads it; main does not see CLI11.
class CommandLine {
 public:
  /// `version`: what --version prints; `footer`: what ends the help.
  CommandLine(int argc, char** argv, const std::string& version, const std::string& footer);
  ~CommandLine();

  /// Where commands are added, before parse().
  Arguments root();
  std::string help() const;

  /// Reads the words. "help", "help COMMAND" and "version" count as --help and --version: returns
  /// the text that was asked for instead of a command. Throws InputError naming a command or an
  /// option that does not exist, and one that is similar, or what is wrong with a value.
  std::optional<std::string> parse();

 private:
  std::vector<std::string> words_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep::app
