#include "config/key_rules.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::config {
namespace {

double number_of(const ConfigKey& key, const Config& config) {
  return real_number(key.get(config)).value_or(0);
}

void check_range(const ConfigKey& key, const Config& config) {
  const KeyRange& range = *key.range;
  const double value = number_of(key, config);
  if (range.or_zero && value == 0) return;
  const double high =
      range.high_key.empty() ? range.high : number_of(*find_key(range.high_key), config);
  const std::string given = fmt::format("{} = {}: must ", key.name, key.get(config));
  require(value >= range.low || std::isfinite(high),
          given + fmt::format("be at least {}", range.low));
  require(value >= range.low && value <= high,
          given + fmt::format("lie between {} and {}", range.low, high));
}

/// A switch that is off asks for nothing, so it may be given anywhere.
bool asks_for_nothing(const ConfigKey& key, const Config& config, const Config& defaults) {
  const std::string value = key.get(config);
  return value == key.get(defaults) || (key.is_switch && value == "false");
}

}  // namespace

void check_ranges(const Config& config) {
  for (const ConfigKey& key : config_keys())
    if (key.range) check_range(key, config);
}

void refuse_idle_keys(const Config& config) {
  const Config defaults;
  for (const ConfigKey& key : config_keys()) {
    if (!key.need || key.need->met(config) || asks_for_nothing(key, config, defaults)) continue;
    const ConfigKey& other = *find_key(key.need->key);
    const char* quote = other.kind == TomlKind::text && !other.is_switch ? "'" : "";
    throw InputError(fmt::format("{} = {} would have no effect: {} is {}{}{}{}", key.name,
                                 key.get(config), other.name, quote, other.get(config), quote,
                                 key.need->why.empty() ? "" : "; " + key.need->why));
  }
}

}  // namespace lockstep::config
