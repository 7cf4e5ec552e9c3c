#include "lockstep/config/keys.hpp"

#include <algorithm>
#include <cctype>

#include "config/key.hpp"

namespace lockstep::config {

void parse_key(const std::string& text, const std::string& key, bool& value) {
  require(text == "true" || text == "false",
          fmt::format("{}: '{}' is neither true nor false", key, text));
  value = text == "true";
}

void parse_key(const std::string& text, const std::string&, std::string& value) { value = text; }

void parse_key(const std::string& text, const std::string& key, std::vector<std::uint64_t>& value) {
  value.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parse_key(text.substr(at, comma - at), key, value.emplace_back());
    at = comma + 1;
  }
}

std::string ConfigKey::values() const {
  if (is_switch) return "true|false|auto";
  if (!choices.empty()) return join(choices, "|");
  if (is_size) return "SIZE";
  switch (kind) {
    case TomlKind::number:
      return "NUMBER";
    case TomlKind::boolean:
      return "true|false";
    case TomlKind::list:
      return "N,N,...";
    default:
      return "TEXT";
  }
}

std::string ConfigKey::range_text() const {
  if (kind != TomlKind::number) return "";
  KeyRange numbers = range.value_or(KeyRange{});
  if (has_auto && numbers.low == 0) numbers.low = 1;
  std::string text = has_auto ? "auto, or " : numbers.or_zero ? "0, or " : "";
  if (numbers.high_key.empty() && !std::isfinite(numbers.high))
    return text + fmt::format("at least {}", numbers.low);
  return text +
         fmt::format("{} to {}", numbers.low,
                     numbers.high_key.empty() ? fmt::format("{}", numbers.high) : numbers.high_key);
}

std::string ConfigKey::usual_value() const {
  const std::string value = get({});
  return value.empty() ? if_empty : value;
}

KeyEntry&& KeyEntry::within(double low, double high) && {
  key_.range = {.low = low, .high = high, .high_key = "", .or_zero = false};
  return std::move(*this);
}

KeyEntry&& KeyEntry::at_least(double low) && {
  key_.range.emplace().low = low;
  return std::move(*this);
}

KeyEntry&& KeyEntry::up_to(std::string other) && {
  key_.range.emplace().high_key = std::move(other);
  return std::move(*this);
}

KeyEntry&& KeyEntry::one_of(std::vector<std::string> choices) && {
  key_.set = [set = key_.set, name = key_.name, choices](Config& config, const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      throw unknown_choice(text, name, choices);
    set(config, text);
  };
  key_.choices = std::move(choices);
  return std::move(*this);
}

KeyEntry&& KeyEntry::or_zero() && {
  key_.range.value().or_zero = true;
  return std::move(*this);
}

KeyEntry&& KeyEntry::or_auto() && {
  key_.has_auto = true;
  key_.set = [set = key_.set](Config& config, const std::string& text) {
    set(config, text == "auto" ? "0" : text);
  };
  key_.get = [get = key_.get](const Config& config) {
    const std::string text = get(config);
    return text == "0" ? "auto" : text;
  };
  return std::move(*this);
}

KeyEntry&& KeyEntry::size(double unit_bytes, bool whole) && {
  key_.is_size = true;
  key_.set = [name = key_.name, set = key_.set, unit_bytes, whole](Config& config,
                                                                   const std::string& text) {
    const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
    if (!has_unit || text == "auto") return set(config, text);
    const double value = static_cast<double>(parse_bytes(text, name)) / unit_bytes;
    set(config, whole ? fmt::format("{:.0f}", std::ceil(value)) : fmt::format("{}", value));
  };
  return std::move(*this);
}

KeyEntry&& KeyEntry::needs(std::string other, std::function<bool(const Config&)> met,
                           std::string why) && {
  key_.need = {.key = std::move(other), .met = std::move(met), .why = std::move(why)};
  return std::move(*this);
}

KeyEntry&& KeyEntry::is(bool ConfigKey::*property, bool value) && {
  key_.*property = value;
  return std::move(*this);
}

KeyEntry&& KeyEntry::if_empty(std::string meaning) && {
  key_.if_empty = std::move(meaning);
  return std::move(*this);
}

KeyEntry&& KeyEntry::other_name(std::string name) && {
  key_.other_name = std::move(name);
  return std::move(*this);
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    for (const auto& section :
         {run_keys(), model_keys(), data_keys(), optim_keys(), eval_keys(), checkpoint_keys(),
          comm_keys(), sync_keys(), clock_keys(), watch_keys(), metrics_keys(), cost_keys()})
      keys.insert(keys.end(), section.begin(), section.end());
    return keys;
  }();
  return all;
}

std::vector<const ConfigKey*> changed_keys(const Config& config, const Config& other) {
  std::vector<const ConfigKey*> changed;
  for (const ConfigKey& key : config_keys())
    if (key.get(config) != key.get(other)) changed.push_back(&key);
  return changed;
}

Config alone(Config config) {
  for (const ConfigKey* key : changed_keys(config))
    if (key->between_ranks) key->set(config, key->get({}));
  return config;
}

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

}  // namespace lockstep::config
