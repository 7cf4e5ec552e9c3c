#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/study/search/best.hpp"
#include "lockstep/study/search/show.hpp"
#include "study/search/columns.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

// Numbers of Optuna's enumerations.
enum JournalWord { create_study = 0, create_trial = 4 };
enum TrialState { complete = 1, pruned = 2, failed = 3 };
enum Goal { minimise = 1, maximise = 2 };

/// A number among the choices is a number there.
Json choice_of(const std::string& value) {
  const auto number = real_number(value);
  return number ? Json(*number) : Json(value);
}

Json distribution_of(const Dimension& dimension) {
  if (!dimension.choices.empty()) {
    Json choices = Json::array();
    for (const std::string& value : dimension.choices) choices.push_back(choice_of(value));
    return {{"name", "CategoricalDistribution"}, {"attributes", {{"choices", choices}}}};
  }
  if (!dimension.integer)
    return {{"name", "FloatDistribution"},
            {"attributes",
             {{"step", nullptr},
              {"low", dimension.low},
              {"high", dimension.high},
              {"log", dimension.log}}}};
  return {{"name", "IntDistribution"},
          {"attributes",
           {{"step", 1},
            {"low", static_cast<std::int64_t>(dimension.low)},
            {"high", static_cast<std::int64_t>(dimension.high)},
            {"log", dimension.log}}}};
}

/// A choice's place, a number, or nothing where the space has no such value.
std::optional<double> place_in(const Dimension& dimension, const config::Config& keys) {
  if (dimension.choices.empty()) {
    const auto number = number_of(dimension, keys);
    return number && *number >= dimension.low && *number <= dimension.high ? number : std::nullopt;
  }
  for (std::size_t k = 0; k < dimension.choices.size(); ++k) {
    config::Config chosen = keys;
    config::set_key(chosen, dimension.key, dimension.choices[k]);
    if (config::changed_keys(chosen, keys).empty()) return static_cast<double>(k);
  }
  return std::nullopt;
}

Json trial_in(const SearchFolder& folder, std::size_t trial) {
  const LegResult& newest = newest_leg(folder, trial);
  const bool whole = newest.end == LegEnd::done && newest.rung + 1 == folder.spec().epochs.size();
  Json distributions = Json::object(), params = Json::object(), scores = Json::object();
  const auto keys = folder.trials().find(trial);
  for (const Dimension& dimension : folder.space().dimensions) {
    if (keys == folder.trials().end() || !counts_in(dimension, keys->second)) continue;
    const auto place = place_in(dimension, keys->second);
    if (!place) continue;
    distributions[dimension.key] = json_text(distribution_of(dimension));
    params[dimension.key] = *place;
  }
  for (auto at = folder.results().lower_bound({trial, 0});
       at != folder.results().end() && at->first.trial == trial; ++at)
    if (at->second.end == LegEnd::done) scores[std::to_string(at->second.epoch)] = at->second.score;
  return {{"op_code", static_cast<int>(create_trial)},
          {"worker_id", "lockstep"},
          {"study_id", 0},
          {"datetime_start", nullptr},
          {"state", static_cast<int>(whole                          ? complete
                                     : newest.end == LegEnd::failed ? failed
                                                                    : pruned)},
          {"value", whole ? Json(newest.score) : Json(nullptr)},
          {"values", nullptr},
          {"distributions", distributions},
          {"params", params},
          {"user_attrs", {{"trial", trial}, {"options", options_of(folder, trial)}}},
          {"system_attrs", Json::object()},
          {"intermediate_values", scores}};
}

}  // namespace

std::string optuna_journal(const SearchFolder& folder) {
  std::vector<std::size_t> trials = placed(folder);
  require(!trials.empty() && newest_leg(folder, trials[0]).end == LegEnd::done &&
              newest_leg(folder, trials[0]).rung + 1 == folder.spec().epochs.size(),
          folder.path().string() + ": no trial has come to its last epoch yet");
  const bool more = newest_leg(folder, trials[0]).more_is_better;
  std::string text =
      json_text(Json{{"op_code", static_cast<int>(create_study)},
                     {"worker_id", "lockstep"},
                     {"study_name", folder.path().filename().string()},
                     {"directions", {static_cast<int>(more ? maximise : minimise)}}}) +
      "\n";
  std::ranges::sort(trials);
  for (const std::size_t trial : trials) text += json_text(trial_in(folder, trial)) + "\n";
  return text;
}

}  // namespace lockstep::study
