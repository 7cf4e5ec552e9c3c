#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "app/cli/command_line.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/config/recipe.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::app {

/// The configuration of a run from the command line: --recipe NAME, --config FILE, which takes
/// precedence over the recipe, and an option for each key of config::config_keys(), which takes
/// precedence over both.
class RunOptions {
 public:
  /// Which keys the help shows without being asked for a section.
  enum class KeysOf { first_help, no_help };
  void add_to(Arguments app, KeysOf shown = KeysOf::no_help);
  /// Whether the command line has a key, known or not, or a file with keys.
  bool given() const;
  bool given(const std::string& key) const { return given_.contains(key); }  ///< on the line
  /// Throws InputError naming a key on the command line that is about the files, commands or states
  /// of a run, which the command has not: `why`.
  void refuse_those_of_runs(std::string_view why) const;
  /// Defaults, then the recipe, then the file, then the command line. Throws InputError naming
  /// file, line and key.
  config::Config config(config::Config defaults = {}) const;
  /// The same for a question about steps that no run makes: as after a training's first epochs, so
  /// keys that begin to count later do so at once. `why`: as for refuse_those_of_runs().
  config::Config of_steps(std::string_view why, config::Config defaults = {}) const;
  /// To continue a run: its saved configuration takes the place of the defaults.
  config::Config config_of_run(const train::RunDirectory& run) const;
  /// The recipe that was asked for.
  std::optional<config::Recipe> recipe() const;

 private:
  void apply(config::Config& config) const;

  std::optional<Arguments> app_;
  std::string file_, recipe_;
  std::map<std::string, std::string> given_;
  mutable std::optional<config::Recipe> found_;  ///< once its file was read
};

/// One key of a configuration as an option of a command that has only a few of them. Parsing throws
/// InputError as config::set_key() does; `config` must live as long as the app.
void add_key(Arguments app, const config::ConfigKey& key, config::Config& config);

/// The option --precision of commands that take a trained network.
void add_precision(Arguments app, std::string& precision);

/// The keys for reading other programs' HDF5 files, as given to a command that reads the rest of
/// its configuration later.
using DataKeys = std::map<std::string, std::string>;
void add_data_keys(Arguments app, DataKeys& keys);
/// The training may have had other names for its validation set.
void take_data_keys(const DataKeys& keys, config::Config& config);

}  // namespace lockstep::app
