#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/config/toml.hpp"

namespace lockstep::config {

/// The numbers that a key accepts.
struct KeyRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  std::string high_key;  ///< the upper bound is the value of this key
  bool or_zero = false;  ///< 0 is valid, too
};

/// What a key needs to have an effect. It is an error to set a key without what it needs.
struct KeyNeed {
  std::string key;  ///< the other key that decides
  std::function<bool(const Config&)> met;
  std::string why;  ///< may be empty
};

/// One key: its name in the file and (after "--") on the command line, how to set and show it, and
/// which values it accepts.
struct ConfigKey {
  std::string name;  ///< "optim.lr"
  TomlKind kind = TomlKind::text;
  std::string help;      ///< without the range, the choices and the default
  std::string if_empty;  ///< what counts where a text is empty; empty: nothing
  std::optional<KeyRange> range;
  std::vector<std::string> choices;  ///< empty: any text
  std::optional<KeyNeed> need;
  bool changes_results = true;  ///< resuming with another value changes the bits
  bool is_size = false;         ///< a number that may also be a text such as "4GB"
  bool has_auto = false;        ///< "auto" is a value; 0, its older form, is taken, too
  bool is_usual = false;        ///< among those that most trainings need: help begins with them
  bool is_switch = false;       ///< "auto", or true or false as a boolean key takes them
  bool for_external = false;    ///< about reading a file that is not a shard
  bool of_a_node = false;       ///< where a node has its data, or how it reads: nodes may differ
  bool between_ranks = false;   ///< about several ranks: has no effect where there is one
  bool of_pace = false;         ///< changes how long a device computes a step of a network
  bool of_a_run = false;        ///< asks for files, commands or a state of a run
  bool names_input = false;     ///< a file or folder that has to be there
  std::string other_name;       ///< as an option; may be empty
  /// Throws InputError naming the key, the value and what was expected.
  std::function<void(Config&, const std::string& value)> set;
  std::function<std::string(const Config&)> get;  ///< in the form that set() takes
  std::string values() const;       ///< in help: "true|false", "auto|cpu|cuda", "NUMBER"
  std::string range_text() const;   ///< "auto, or 1 to 64"; empty: it has no numbers
  std::string usual_value() const;  ///< its default
  /// On a command line the name alone means true.
  bool takes_no_value() const { return is_switch || kind == TomlKind::boolean; }
};

/// All keys, in the order in which help lists them.
const std::vector<ConfigKey>& config_keys();

/// Those whose values differ from those of `other`, in the same order.
std::vector<const ConfigKey*> changed_keys(const Config& config, const Config& other = {});

/// The same training on one rank: without keys that are about several.
Config alone(Config config);

/// Null if there is no key of this name.
const ConfigKey* find_key(std::string_view name);

}  // namespace lockstep::config
