#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
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

namespace {

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

/// --batchsize is --batch-size.
std::string without_dashes(std::string_view name) {
  std::string plain(name);
  std::erase(plain, '-');
  return plain;
}

/// What other programs call a key.
std::string by_other_name(const std::string& part) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 32> names{
      {{"learning-rate", "optim.lr"},
       {"batch-size", "batch"},
       {"num-workers", "data.workers"},
       {"wd", "optim.weight-decay"},
       {"validation", "data.val"},
       {"arch", "model"},
       {"device", "backend"},
       {"output", "out"},
       {"gpus", "backend"},
       {"amp", "precision"},
       {"bs", "batch"},
       {"lars", "optim.rule"},
       {"muon", "optim.rule"},
       {"optimizer", "optim.rule"},
       {"lr-scheduler", "optim.decay"},
       {"scheduler", "optim.decay"},
       {"pretrained", "init"},
       {"weights", "init"},
       {"finetune", "init"},
       {"checkpoint-path", "init"},
       {"dataset", "data.train"},
       {"data-dir", "data.train"},
       {"data-path", "data.train"},
       {"train-dir", "data.train"},
       {"val-dir", "data.val"},
       {"num-epochs", "epochs"},
       {"max-epochs", "epochs"},
       {"n-epochs", "epochs"},
       {"save-dir", "out"},
       {"output-dir", "out"},
       {"log-dir", "out"},
       {"network", "model"}}};
  for (const auto& [other, key] : names)
    if (without_dashes(part) == without_dashes(other)) return std::string(key);
  return "";
}

/// What is no key, but an option that the command line of a training has.
bool is_option_of_train(const std::string& name) {
  return name == "config" || name == "recipe" || name == "dry-run";
}

/// Keys that have this last part: "lr" is most likely optim.lr.
std::vector<std::string> with_last_part(const std::string& part) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys())
    if (last_part(key.name) == part) found.push_back("'" + key.name + "'");
  return found;
}

/// The first key of a section: the one that is given most often.
std::string first_of_section(const std::string& section) {
  for (const ConfigKey& key : config_keys())
    if (key.name.starts_with(section + '.')) return key.name;
  return "";
}

/// The key that is most similar, as a whole or in its last part.
std::string similar_key(const std::string& name) {
  std::vector<std::string> whole, parts;
  for (const ConfigKey& key : config_keys()) {
    whole.push_back(key.name);
    parts.push_back(last_part(key.name));
  }
  if (std::string best = nearest(name, whole); !best.empty()) return best;
  const std::string part = nearest(last_part(name), parts);
  const auto at = std::find(parts.begin(), parts.end(), part);
  return at == parts.end() ? "" : whole[static_cast<std::size_t>(at - parts.begin())];
}

}  // namespace

std::string unknown_key(const std::string& name) {
  const std::string plain = plain_form(name), part = last_part(plain);
  const std::string text = fmt::format("unknown key '{}'", name);
  const auto meant = [&](const std::string& keys) {
    return fmt::format("{}; did you mean {}?", text, keys);
  };
  if (is_option_of_train(plain))
    return fmt::format("{}: it is no key, but an option of 'lockstep train'", text);
  if (const auto same = with_last_part(part); !same.empty()) return meant(join(same, " or "));
  if (const std::string key = by_other_name(part); !key.empty()) return meant("'" + key + "'");
  if (const std::string key = first_of_section(plain); !key.empty())
    return fmt::format("{}: it is a section, with keys such as '{}'", text, key);
  if (const std::string key = similar_key(plain); !key.empty()) return meant("'" + key + "'");
  return text + "; 'lockstep train --help' lists all keys";
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
