#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/config/toml.hpp"

namespace lockstep::config {

/// The numbers that a key takes.
struct KeyRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  std::string high_key;  ///< the value of this key is the highest
  bool or_zero = false;  ///< 0, too
};

/// What a key needs to have an effect. A key that is not at its default and lacks it is an error.
struct KeyNeed {
  std::string key;  ///< another key, which decides it
  std::function<bool(const Config&)> met;
  std::string why;  ///< may be empty
};

/// One key: its name in the file and (after "--") on the command line, how it is set and shown, and
/// which values it takes.
struct ConfigKey {
  std::string name;  ///< "optim.lr"
  TomlKind kind = TomlKind::text;
  std::string help;  ///< with the range or the choices at its end
  std::optional<KeyRange> range;
  std::vector<std::string> choices;  ///< empty: any text
  std::optional<KeyNeed> need;
  bool changes_results = true;  ///< a resume with another value cannot end with the same bits
  bool for_external = false;    ///< says how a file that is no shard is read
  /// Throws InputError naming the key, the value and what was expected.
  std::function<void(Config&, const std::string& value)> set;
  std::function<std::string(const Config&)> get;  ///< what set() would take
};

/// All keys, in the order in which they are shown.
const std::vector<ConfigKey>& config_keys();

/// Null: there is no key of this name.
const ConfigKey* find_key(std::string_view name);

/// Throws InputError naming the key, the value and the range when one is outside.
void check_ranges(const Config& config);

/// Throws InputError naming a key that was given but cannot have an effect, and the reason. A value
/// at its default counts as not given, so that a saved configuration, which has all keys, reads
/// back.
void refuse_idle_keys(const Config& config);

}  // namespace lockstep::config
