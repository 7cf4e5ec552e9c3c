#pragma once

// For keys/, where each key is one entry:
//   key("data.pad", &C::data, &Section::pad, "...").within(0, 64).needs("data.crop", ..., "...")

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/choices.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::config {

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

template <class T>
inline constexpr TomlKind kind_of = TomlKind::list;
template <>
inline constexpr TomlKind kind_of<std::string> = TomlKind::text;
template <Enumerated T>
inline constexpr TomlKind kind_of<T> = TomlKind::text;
template <>
inline constexpr TomlKind kind_of<bool> = TomlKind::boolean;
template <Number T>
inline constexpr TomlKind kind_of<T> = TomlKind::number;
template <>
inline constexpr TomlKind kind_of<backend::Recompute> = TomlKind::text;

template <>
inline constexpr TomlKind kind_of<backend::Winograd> = TomlKind::text;

template <>
inline constexpr TomlKind kind_of<StepRange> = TomlKind::text;

template <std::floating_point T>
void parse_key(const std::string& text, const std::string& key, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  require(result.ec == std::errc() && result.ptr == end && std::isfinite(value),
          fmt::format("{}: '{}' is not a number", key, text));
}
template <Enumerated T>
void parse_key(const std::string& text, const std::string& key, T& value) {
  value = parse_choice<T>(text, key);
}
template <std::unsigned_integral T>
void parse_key(const std::string& text, const std::string& key, T& value) {
  value = parse_count(text, key);
}
void parse_key(const std::string& text, const std::string& key, bool& value);
void parse_key(const std::string& text, const std::string& key, std::string& value);
void parse_key(const std::string& text, const std::string& key, std::vector<std::uint64_t>& value);

inline void parse_key(const std::string& text, const std::string& key, backend::Recompute& value) {
  value = backend::parse_recompute(text, key);
}

inline void parse_key(const std::string& text, const std::string& key, backend::Winograd& value) {
  value = backend::parse_winograd(text, key);
}

inline void parse_key(const std::string& text, const std::string& key, StepRange& value) {
  value = parse_step_range(text, key);
}

inline std::string show_key(const StepRange& value) { return to_string(value); }
inline std::string show_key(const backend::Winograd& value) { return to_string(value); }
inline std::string show_key(const backend::Recompute& value) { return to_string(value); }
inline std::string show_key(const std::string& value) { return value; }
inline std::string show_key(const std::vector<std::uint64_t>& value) { return join(value, ","); }
template <Enumerated T>
std::string show_key(const T& value) {
  return choice_name(value);
}
template <class T>
std::string show_key(const T& value) {
  return fmt::format("{}", value);  // shortest text that reads back to the same value
}

/// A key that is being described.
class KeyEntry {
 public:
  explicit KeyEntry(ConfigKey key) : key_(std::move(key)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a list of entries becomes one of keys
  operator ConfigKey() && { return std::move(key_); }

  KeyEntry&& within(double low, double high) &&;
  KeyEntry&& at_least(double low) &&;
  /// From 0 to the value of another key.
  KeyEntry&& up_to(std::string other) &&;
  /// A text that is one of these.
  KeyEntry&& one_of(std::vector<std::string> choices) &&;
  /// 0 is valid, too.
  KeyEntry&& or_zero() &&;
  /// "auto", which is kept as 0.
  KeyEntry&& or_auto() &&;
  /// Takes sizes such as 4GB, too; numbers without a unit are of `unit_bytes`, and `whole` or not.
  KeyEntry&& size(double unit_bytes = 1, bool whole = true) &&;
  KeyEntry&& needs(std::string other, std::function<bool(const Config&)> met,
                   std::string why = "") &&;
  // What ConfigKey has of the same names.
  KeyEntry&& for_external() && { return std::move(*this).is(&ConfigKey::for_external); }
  KeyEntry&& of_a_node() && { return std::move(*this).is(&ConfigKey::of_a_node); }
  KeyEntry&& between_ranks() && { return std::move(*this).is(&ConfigKey::between_ranks); }
  KeyEntry&& of_pace() && { return std::move(*this).is(&ConfigKey::of_pace); }
  KeyEntry&& of_a_run() && { return std::move(*this).is(&ConfigKey::of_a_run); }
  KeyEntry&& names_input() && { return std::move(*this).is(&ConfigKey::names_input); }
  KeyEntry&& usual() && { return std::move(*this).is(&ConfigKey::is_usual); }
  KeyEntry&& if_empty(std::string meaning) &&;
  KeyEntry&& other_name(std::string name) &&;
  /// The key does not change results: a resume may change it freely.
  KeyEntry&& bookkeeping() && { return std::move(*this).is(&ConfigKey::changes_results, false); }

 private:
  KeyEntry&& is(bool ConfigKey::*property, bool value = true) &&;

  ConfigKey key_;
};

/// A key for the field that `access` finds in a (const) Config.
template <class Access>
KeyEntry make_key(std::string name, std::string help, Access access) {
  using Value = std::remove_reference_t<decltype(access(std::declval<Config&>()))>;
  ConfigKey key;
  key.name = name;
  key.kind = kind_of<Value>;
  key.help = std::move(help);
  if constexpr (Enumerated<Value>) key.choices = choice_names<Value>();
  key.is_switch = std::is_same_v<Value, Switch>;
  key.set = [name, access](Config& config, const std::string& text) {
    Value value{};
    parse_key(text, name, value);
    access(config) = std::move(value);
  };
  key.get = [access](const Config& config) { return show_key(access(config)); };
  return KeyEntry(std::move(key));
}

template <class Value>
KeyEntry key(std::string name, Value Config::*field, std::string help) {
  return make_key(
      std::move(name), std::move(help), [field](auto& config) -> auto& { return config.*field; });
}

template <class Section, class Value>
KeyEntry key(std::string name, Section Config::*section, Value Section::*field, std::string help) {
  return make_key(
      std::move(name), std::move(help),
      [ section, field ](auto& config) -> auto& { return config.*section.*field; });
}

// Each section of the configuration has one table here: its keys, in the order of --help, and the
// conditions under which they have an effect.

using C = Config;  // each row of the tables names it

std::vector<ConfigKey> run_keys();  ///< without a section
std::vector<ConfigKey> model_keys();
std::vector<ConfigKey> data_keys();
std::vector<ConfigKey> optim_keys();
std::vector<ConfigKey> eval_keys();
std::vector<ConfigKey> checkpoint_keys();
std::vector<ConfigKey> comm_keys();
std::vector<ConfigKey> sync_keys();
std::vector<ConfigKey> clock_keys();
std::vector<ConfigKey> metrics_keys();
std::vector<ConfigKey> cost_keys();
std::vector<ConfigKey> watch_keys();  ///< liveness, walltime, audit, binding, preflight

// Conditions of several sections.
inline bool validates(const Config& config) {
  return !config.data.val.empty() || config.data.held_out > 0;
}
inline bool may_use_gpus(const Config& config) {
  return config.backend != BackendChoice::cpu && config.backend != BackendChoice::clock;
}

// What the table of keys says of values, held against a configuration.

/// Throws InputError naming the key, the value and the range when a value is out of range.
void check_ranges(const Config& config);

/// Throws InputError naming a key that was given but cannot have an effect, and the reason. A value
/// at its default counts as not given, so that a saved configuration, which has all keys, reads
/// back.
void refuse_idle_keys(const Config& config);

/// "unknown key 'lr'; did you mean 'optim.lr'?": what to say about a key that does not exist.
std::string unknown_key(const std::string& name);

}  // namespace lockstep::config
