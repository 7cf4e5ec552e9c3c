#include "lockstep/study/search/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/config/toml.hpp"

namespace lockstep::study {
namespace {

using config::ConfigKey;
using config::TomlEntry;
using config::TomlKind;

const std::vector<std::string> fields{"low", "high", "log", "integer", "choices", "when"};

bool takes(const ConfigKey& key, const std::string& value) {
  try {
    config::Config config;
    key.set(config, value);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// A number in four digits, or the bound that it would pass.
std::string number_in(const Dimension& dimension, double value) {
  const std::string text =
      dimension.integer ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
  const double rounded = real_number(text).value_or(value);
  if (rounded < dimension.low) return fmt::format("{}", dimension.low);
  return rounded > dimension.high ? fmt::format("{}", dimension.high) : text;
}

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(between, at), text.size());
    parts.emplace_back(trimmed(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

class SpaceReader {
 public:
  SpaceReader(std::string_view text, const std::string& origin) : origin_(origin) {
    for (const TomlEntry& entry : config::read_toml(text, origin)) read(entry);
    require(!lines_.empty(), origin + ": names no key, such as [optim.lr] with low and high");
    for (std::size_t k = 0; k < space_.dimensions.size(); ++k) check_whole(k);
  }
  SearchSpace take() { return std::move(space_); }

 private:
  void want(bool good, std::size_t line, const std::string& what) const {
    require(good, fmt::format("{}, line {}: {}", origin_, line, what));
  }

  Dimension& dimension_of(const std::string& name, std::size_t line) {
    for (Dimension& one : space_.dimensions)
      if (one.key == name) return one;
    const ConfigKey* key = config::find_key(name);
    if (key == nullptr) try {
        config::Config none;
        config::set_key(none, name, "");
      } catch (const InputError& error) {
        want(false, line, error.what());
      }
    want(!is_of_search(name), line, name + ": is the same in all trials of a search");
    lines_.push_back(line);
    return space_.dimensions.emplace_back(Dimension{.key = name});
  }

  double number(const TomlEntry& entry) {
    const auto value = real_number(entry.value);
    want(entry.kind == TomlKind::number && value && std::isfinite(*value), entry.line,
         entry.key + " takes a number");
    return *value;
  }
  bool truth(const TomlEntry& entry) {
    want(entry.kind == TomlKind::boolean, entry.line, entry.key + " takes true or false");
    return entry.value == "true";
  }

  void read_budget(const TomlEntry& entry) {
    static const std::vector<std::string> limits{"budget.flops", "budget.latency-ms"};
    want(std::ranges::find(limits, entry.key) != limits.end(), entry.line,
         fmt::format("'{}' is not one of {}{}", entry.key, join(limits, ", "),
                     did_you_mean(entry.key, limits)));
    const double most = number(entry);
    want(most > 0, entry.line, entry.key + " takes a number above 0");
    (entry.key == limits[0] ? space_.budget.flops : space_.budget.latency_ms) = most;
  }

  void read(const TomlEntry& entry) {
    if (entry.key.starts_with("budget.")) return read_budget(entry);
    const std::size_t dot = entry.key.rfind('.');
    const std::string field = dot == std::string::npos ? "" : entry.key.substr(dot + 1);
    const bool known = std::ranges::find(fields, field) != fields.end();
    if (!known && config::find_key(entry.key) != nullptr)
      want(false, entry.line,
           fmt::format("{0}: write [{0}] and below it low and high, or choices", entry.key));
    want(known, entry.line,
         fmt::format("'{}' is not one of {}{}", field.empty() ? entry.key : field,
                     join(fields, ", "), did_you_mean(field, fields)));
    Dimension& dimension = dimension_of(entry.key.substr(0, dot), entry.line);
    given_.insert(entry.key);
    if (field == "low") dimension.low = number(entry);
    if (field == "high") dimension.high = number(entry);
    if (field == "log") dimension.log = truth(entry);
    if (field == "integer") dimension.integer = truth(entry);
    if (field == "when") read_condition(entry, dimension);
    if (field != "choices") return;
    const bool numbers = entry.kind == TomlKind::list && !entry.value.empty();
    want(numbers || entry.kind == TomlKind::texts, entry.line,
         entry.key + " takes a list of numbers or of texts");
    dimension.choices = parts_of(entry.value, numbers ? ',' : '\n');
  }

  void read_condition(const TomlEntry& entry, Dimension& dimension) {
    const std::vector<std::string> sides = parts_of(entry.value, '=');
    want(entry.kind == TomlKind::text && sides.size() == 2, entry.line,
         entry.key + " takes a text like \"optim.rule = lars|lamb\"");
    std::vector<std::string> above;
    const Dimension* other = nullptr;
    for (const Dimension& one : space_.dimensions) {
      if (&one == &dimension) break;
      above.push_back(one.key);
      if (one.key == sides[0]) other = &one;
    }
    want(other != nullptr, entry.line,
         fmt::format("{}: '{}' is no key above it in this space{}", entry.key, sides[0],
                     did_you_mean(sides[0], above)));
    dimension.when = {sides[0], parts_of(sides[1], '|')};
    for (const std::string& value : dimension.when->values)
      want(std::ranges::find(other->choices, value) != other->choices.end(), entry.line,
           fmt::format(
               "{}: '{}' is not one of the choices of {}{}", entry.key, value, other->key,
               other->choices.empty() ? ", which has a range" : ": " + join(other->choices, ", ")));
  }

  void check_whole(std::size_t k) {
    Dimension& dimension = space_.dimensions[k];
    const std::size_t line = lines_[k];
    const std::string& name = dimension.key;
    const ConfigKey& key = *config::find_key(name);
    const bool low = given_.contains(name + ".low"), high = given_.contains(name + ".high");
    if (!dimension.choices.empty()) {
      want(!low && !high && !dimension.log && !dimension.integer, line,
           name + ": has choices, and so neither low, high, log nor integer");
      for (const std::string& value : dimension.choices) check_value(key, value, line);
      const std::set<std::string> each(dimension.choices.begin(), dimension.choices.end());
      want(each.size() == dimension.choices.size() && each.size() > 1, line,
           name + ".choices: needs two or more, each once");
      return;
    }
    want(low && high, line, name + ": needs low and high, or choices");
    want(dimension.low < dimension.high, line,
         fmt::format("{}: from low = {} to high = {} there is nothing", name, dimension.low,
                     dimension.high));
    want(!dimension.log || dimension.low > 0, line,
         fmt::format("{}: log = true needs low above 0, not {}", name, dimension.low));
    const double between = dimension.low + 0.4142 * (dimension.high - dimension.low);
    if (!takes(key, fmt::format("{:.6f}", between))) dimension.integer = true;
    for (const double bound : {dimension.low, dimension.high}) {
      want(!dimension.integer || bound == std::floor(bound), line,
           fmt::format("{}: takes whole numbers, not {}", name, bound));
      check_value(key, fmt::format("{}", bound), line);
    }
  }

  void check_value(const ConfigKey& key, const std::string& value, std::size_t line) const {
    try {
      config::Config config;
      key.set(config, value);
    } catch (const InputError& error) {
      want(false, line, error.what());
    }
    const auto number = real_number(value);
    if (!key.range || !number || (key.range->or_zero && *number == 0)) return;
    want(*number >= key.range->low && *number <= key.range->high, line,
         fmt::format("{} = {}: {} is valid", key.name, value, key.range_text()));
  }

  std::string origin_;
  SearchSpace space_;
  std::vector<std::size_t> lines_;  ///< of each dimension's first entry
  std::set<std::string> given_;
};

std::string value_at(const Dimension& dimension, double u) {
  if (!dimension.choices.empty())
    return dimension
        .choices[static_cast<std::size_t>(u * static_cast<double>(dimension.choices.size()))];
  // A whole number is the part of the range around it, so that the bounds come as often.
  const double half = dimension.integer ? 0.5 : 0;
  const double low = dimension.low - half, high = dimension.high + half;
  const double value = dimension.log ? low * std::pow(high / low, u) : low + u * (high - low);
  return number_in(dimension, dimension.integer ? std::round(value) + 0.0 : value);  // no -0
}

}  // namespace

bool is_of_search(const std::string& key) {
  static const std::set<std::string> all{"epochs", "out", "eval.best", "eval.every-epochs"};
  return config::find_key(key)->of_a_run || all.contains(key);
}

SearchSpace read_space(std::string_view text, const std::string& origin) {
  return SpaceReader(text, origin).take();
}

PointValues point_of(const SearchSpace& space, PointSampler sampler, std::uint64_t seed,
                     std::uint32_t index, std::uint64_t draw) {
  if (draw > 0) {
    sampler = PointSampler::random;
    seed += draw * 0x9e3779b97f4a7c15;  // other seeds than people choose
  }
  PointValues point;
  std::set<std::string> active;
  for (std::size_t k = 0; k < space.dimensions.size(); ++k) {
    const Dimension& dimension = space.dimensions[k];
    const auto& when = dimension.when;
    const bool counts =
        !when || (active.contains(when->key) &&
                  std::ranges::find(when->values, point.at(when->key)) != when->values.end());
    if (counts) active.insert(dimension.key);
    point[dimension.key] = counts ? value_at(dimension, coordinate(sampler, seed, index, k))
                                  : config::find_key(dimension.key)->get({});
  }
  return point;
}

}  // namespace lockstep::study
