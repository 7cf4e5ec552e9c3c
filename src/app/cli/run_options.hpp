#pragma once

#include <map>
#include <optional>
#include <string>

#include "app/cli/arguments.hpp"
#include "lockstep/config/config.hpp"

namespace lockstep::app {

/// The configuration of a run on a command line: --config FILE and one option for each key of
/// train::config_keys(), which goes before the file's.
class RunOptions {
 public:
  void add_to(Arguments app);
  /// Defaults, then the file, then the command line. Throws InputError naming file, line and key.
  config::Config config() const;

 private:
  std::optional<Arguments> app_;
  std::string file_;
  std::map<std::string, std::string> given_;
};

}  // namespace lockstep::app
