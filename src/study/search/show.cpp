#include "lockstep/study/search/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/rng.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "study/search/columns.hpp"
#include "study/search/verdict.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t fewest_for_importance = 8;

/// Places from 0; equal values share the mean of theirs.
std::vector<double> places_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t k) { return values[k]; });
  std::vector<double> places(values.size());
  for (std::size_t at = 0; at < order.size();) {
    std::size_t end = at;
    while (end < order.size() && values[order[end]] == values[order[at]]) ++end;
    for (std::size_t k = at; k < end; ++k) places[order[k]] = static_cast<double>(at + end - 1) / 2;
    at = end;
  }
  return places;
}

Interval correlation_of(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr std::uint32_t resamples = 1000;
  std::vector<double> drawn;
  for (std::uint32_t sample = 0; sample < resamples; ++sample) {
    std::vector<double> one, other;
    for (std::size_t k = 0; k < a.size(); ++k) {
      const std::size_t from =
          below(philox(1, k, sample).word[0], static_cast<std::uint32_t>(a.size()));
      one.push_back(a[from]);
      other.push_back(b[from]);
    }
    const double correlation = rank_correlation(one, other);
    if (std::isfinite(correlation)) drawn.push_back(correlation);
  }
  return interval_around(rank_correlation(a, b), std::move(drawn), 0.95);
}

}  // namespace

std::string name_of(std::size_t trial) { return trial == 0 ? "0 (base)" : std::to_string(trial); }

std::vector<std::vector<std::string>> rungs_table(const SearchFolder& folder) {
  std::vector<std::vector<std::string>> rows{
      {"rung", "epochs", "done", "diverged", "failed", "best"}};
  for (std::size_t rung = 0; rung < folder.spec().epochs.size(); ++rung) {
    std::map<LegEnd, std::size_t> counts;
    const LegResult* best = nullptr;
    for (const auto& [leg, result] : folder.results()) {
      if (leg.rung != rung) continue;
      ++counts[result.end];
      if (result.end == LegEnd::done && (!best || result.value() > best->value())) best = &result;
    }
    rows.push_back({std::to_string(rung), std::to_string(folder.spec().epochs[rung]),
                    std::to_string(counts[LegEnd::done]), std::to_string(counts[LegEnd::diverged]),
                    std::to_string(counts[LegEnd::failed]), best ? describe(*best) : "-"});
  }
  return rows;
}

std::vector<std::vector<std::string>> trials_table(const SearchFolder& folder) {
  std::vector<std::vector<std::string>> rows{{"place", "trial", "epochs", "score"}};
  for (const Dimension& dimension : folder.space().dimensions)
    rows.front().push_back(dimension.key);
  std::size_t place = 0;
  for (const std::size_t trial : placed(folder)) {
    const LegResult& newest = newest_leg(folder, trial);
    std::vector<std::string>& row = rows.emplace_back();
    row = {
        std::to_string(++place), name_of(trial), std::to_string(newest.epoch),
        newest.end == LegEnd::done ? fmt::format("{:.4f}", newest.score) : choice_name(newest.end)};
    const auto keys = folder.trials().find(trial);
    for (const Dimension& dimension : folder.space().dimensions)
      row.push_back(
          keys == folder.trials().end() ? "?" : config::find_key(dimension.key)->get(keys->second));
  }
  return rows;
}

std::optional<double> number_of(const Dimension& dimension, const config::Config& keys) {
  const std::string value = config::find_key(dimension.key)->get(keys);
  if (const auto number = real_number(value)) return number;
  const auto at = std::ranges::find(dimension.choices, value);
  if (at == dimension.choices.end()) return std::nullopt;
  return static_cast<double>(at - dimension.choices.begin());
}

bool counts_in(const Dimension& dimension, const config::Config& keys) {
  if (!dimension.when) return true;
  const std::string value = config::find_key(dimension.when->key)->get(keys);
  return std::ranges::find(dimension.when->values, value) != dimension.when->values.end();
}

const LegResult& newest_leg(const SearchFolder& folder, std::size_t trial) {
  const auto next = folder.results().lower_bound({trial + 1, 0});
  return std::prev(next)->second;
}

std::vector<std::size_t> placed(const SearchFolder& folder) {
  std::vector<const LegResult*> newest;
  for (const auto& [leg, result] : folder.results())
    if (leg.rung == 0) newest.push_back(&newest_leg(folder, leg.trial));
  std::ranges::stable_sort(newest, [](const LegResult* a, const LegResult* b) {
    if (a->rung != b->rung) return a->rung > b->rung;
    return is_better(a->value(), b->value());
  });
  std::vector<std::size_t> trials;
  for (const LegResult* one : newest) trials.push_back(one->trial);
  return trials;
}

std::string options_of(const SearchFolder& folder, std::size_t trial) {
  const auto keys = folder.trials().find(trial);
  if (keys == folder.trials().end()) return "its file is no longer there";
  std::vector<std::string> words;
  for (const config::ConfigKey* key : config::changed_keys(keys->second, folder.base()))
    words.push_back(fmt::format("--{} {}", key->name, shell_word(key->get(keys->second))));
  return words.empty() ? "the base itself" : join(words, " ");
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = places_of(a), y = places_of(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    xx += (x[k] - middle) * (x[k] - middle);
    yy += (y[k] - middle) * (y[k] - middle);
    xy += (x[k] - middle) * (y[k] - middle);
  }
  if (xx == 0 || yy == 0) return std::numeric_limits<double>::quiet_NaN();
  return xy / std::sqrt(xx * yy);
}

std::vector<Importance> importance(const SearchFolder& folder) {
  std::vector<Importance> all;
  for (const Dimension& dimension : folder.space().dimensions) {
    if (dimension.choices.size() > 2) continue;  // their order means nothing
    std::vector<double> keys, scores;
    for (const auto& [leg, result] : folder.results()) {
      const auto trial = folder.trials().find(leg.trial);
      if (leg.rung != 0 || trial == folder.trials().end() || result.end == LegEnd::failed ||
          !counts_in(dimension, trial->second))
        continue;
      const auto number = number_of(dimension, trial->second);
      if (!number) continue;
      keys.push_back(*number);
      // Those that diverged are worse than all others.
      scores.push_back(result.end == LegEnd::done ? result.value()
                                                  : -std::numeric_limits<double>::infinity());
    }
    if (keys.size() < fewest_for_importance) continue;
    const Interval correlation = correlation_of(keys, scores);
    if (std::isfinite(correlation.middle)) all.push_back({dimension.key, keys.size(), correlation});
  }
  std::ranges::stable_sort(all, std::greater{},
                           [](const Importance& one) { return std::abs(one.correlation.middle); });
  return all;
}

std::vector<std::string> placement_notes(const SearchFolder& folder) {
  std::vector<std::string> notes;
  for (const auto& [leg, result] : folder.results()) {
    const auto before = folder.results().find({leg.trial, leg.rung - 1});
    if (leg.rung == 0 || before == folder.results().end()) continue;
    if (before->second.devices != result.devices || before->second.ranks != result.ranks)
      notes.push_back(
          fmt::format("trial {} continued, after epoch {}, on {} of {}, and before on {} of {}: "
                      "its bits are not "
                      "those of an uninterrupted training",
                      leg.trial, before->second.epoch, counted(result.ranks, "rank"),
                      join(result.devices, ", "), counted(before->second.ranks, "rank"),
                      join(before->second.devices, ", ")));
  }
  return notes;
}

std::string search_text(const SearchFolder& folder, std::size_t most) {
  const std::vector<std::size_t> places = placed(folder);
  std::vector<std::vector<std::string>> rows = trials_table(folder);
  rows.resize(std::min(rows.size() - 1, most) + 1);
  std::string text = table(rows);
  if (places.empty()) return text + "no trial has a result yet";
  std::size_t told = 0;
  for (const auto& [leg, result] : folder.results())
    if (result.end != LegEnd::done && told++ < most)
      text += fmt::format("trial {}, epoch {}: {}\n", leg.trial, result.epoch, describe(result));
  const LegResult& best = newest_leg(folder, places.front());
  text += fmt::format("first: trial {} with {} after {}: {}", places.front(), describe(best),
                      counted(best.epoch, "epoch"), options_of(folder, places.front()));
  if (best.end == LegEnd::done)
    text += "\nof one seed each: lockstep search best says whether it is better than the next";
  return text;
}

std::string search_json(const SearchFolder& folder) {
  Json trials = Json::array();
  for (const std::size_t trial : placed(folder)) {
    Json keys = Json::object(), legs = Json::array();
    const auto found = folder.trials().find(trial);
    for (const Dimension& dimension : folder.space().dimensions)
      if (found != folder.trials().end())
        keys[dimension.key] = config::find_key(dimension.key)->get(found->second);
    for (auto at = folder.results().lower_bound({trial, 0});
         at != folder.results().end() && at->first.trial == trial; ++at)
      legs.push_back(Json::parse(fields_to_json(at->second)));
    trials.push_back({{"trial", trial}, {"keys", keys}, {"legs", legs}});
  }
  Json importances = Json::array();
  for (const Importance& one : importance(folder))
    importances.push_back({{"key", one.key},
                           {"trials", one.trials},
                           {"rank_correlation", one.correlation.middle},
                           {"low", one.correlation.low},
                           {"high", one.correlation.high}});
  return json_text(Json{{"epochs", folder.spec().epochs},
                        {"mode", choice_name(folder.spec().mode)},
                        {"node_hours", folder.node_hours()},
                        {"trials", trials},
                        {"importance", importances}},
                   2);
}

}  // namespace lockstep::study
