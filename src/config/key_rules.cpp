#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "config/key.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/config/step_range.hpp"

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

StepRange parse_step_range(const std::string& text, const std::string& key) {
  if (text.empty()) return {};
  const std::size_t colon = text.find(':');
  const auto first = whole_number<std::uint64_t>(text.substr(0, colon));
  const auto last = whole_number<std::uint64_t>(colon == text.npos ? "" : text.substr(colon + 1));
  require(
      first && last && *first > 0,
      fmt::format("{}: '{}' is not FIRST:LAST, two steps of the run, such as 200:210", key, text));
  require(*first <= *last,
          fmt::format("{}: '{}' ends before it begins: FIRST:LAST, as in 200:210", key, text));
  require(*last - *first < most_traced_steps,
          fmt::format("{}: '{}' has {} steps; a trace is kept in memory, {} steps at most", key,
                      text, *last - *first + 1, most_traced_steps));
  return {*first, *last};
}

void require_traceable(const StepRange& range, int ranks, const std::string& key) {
  if (range.empty()) return;
  const std::uint64_t most = std::max<std::uint64_t>(
      1, most_traced_of_ranks / static_cast<std::uint64_t>(std::max(ranks, 1)));
  require(range.last - range.first < most,
          fmt::format("{} = {}: rank 0 keeps the traces of all {} ranks in memory, of {} steps at "
                      "most; trace fewer",
                      key, to_string(range), ranks, most));
}

std::string to_string(const StepRange& range) {
  return range.empty() ? "" : fmt::format("{}:{}", range.first, range.last);
}

}  // namespace lockstep::config
