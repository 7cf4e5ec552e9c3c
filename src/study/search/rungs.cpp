#include "lockstep/study/search/rungs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::study {
namespace {

/// What is known of a rung.
struct RungState {
  std::size_t expected = 0;           ///< trials that come here; more may
  std::vector<std::size_t> promoted;  ///< the best that may continue now, the best first
  bool settled = false;               ///< each trial that will ever come here has its result
};

/// `expected`: the trials that come to this rung, which are all of them where `all_known`.
RungState state_of(const RungSpec& spec, const std::map<std::size_t, double>& results,
                   const std::vector<std::size_t>& expected, bool all_known) {
  RungState state{.expected = expected.size(), .promoted = {}};
  state.settled = all_known && std::ranges::all_of(expected, [&](std::size_t trial) {
                    return results.contains(trial);
                  });
  if (spec.in_step && !state.settled) return state;
  state.promoted = ranked(results);
  std::size_t most = state.promoted.size() / spec.keep_one_of;
  if (state.settled) most = std::max<std::size_t>(most, 1);
  state.promoted.resize(std::min(most, state.promoted.size()));
  std::erase_if(state.promoted, [&](std::size_t trial) { return std::isnan(results.at(trial)); });
  return state;
}

std::vector<RungState> states_of(const RungSpec& spec, const std::set<std::size_t>& trials,
                                 const RungResults& results) {
  std::vector<RungState> states;
  std::vector<std::size_t> expected(trials.begin(), trials.end());
  bool all_known = true;
  for (std::size_t rung = 0; rung < spec.epochs.size(); ++rung) {
    states.push_back(state_of(spec, results.at(rung), expected, all_known));
    all_known = states.back().settled;
    expected = states.back().promoted;
  }
  return states;
}

}  // namespace

std::vector<std::uint64_t> rung_epochs(std::uint64_t first, std::size_t keep_one_of,
                                       std::uint64_t epochs) {
  require(first > 0 && first <= epochs,
          fmt::format("the first rung is at epoch {}, and a training has {}: name one from 1 on",
                      first, epochs));
  std::vector<std::uint64_t> rungs;
  for (std::uint64_t at = first; at < epochs; at *= keep_one_of) rungs.push_back(at);
  rungs.push_back(epochs);
  return rungs;
}

bool is_better(double score, double other) {
  return std::isnan(other) ? !std::isnan(score) : score > other;
}

std::vector<std::size_t> ranked(const std::map<std::size_t, double>& results) {
  std::vector<std::pair<double, std::size_t>> scores;
  for (const auto& [trial, score] : results) scores.emplace_back(score, trial);
  std::ranges::stable_sort(
      scores, [](const auto& a, const auto& b) { return is_better(a.first, b.first); });
  std::vector<std::size_t> order;
  for (const auto& [score, trial] : scores) order.push_back(trial);
  return order;
}

std::vector<Leg> due(const RungSpec& spec, const std::set<std::size_t>& trials,
                     const RungResults& results) {
  std::vector<Leg> legs;
  const std::vector<RungState> states = states_of(spec, trials, results);
  for (std::size_t rung = states.size(); --rung > 0;)
    for (const std::size_t trial : states[rung - 1].promoted)
      if (!results.at(rung).contains(trial)) legs.push_back({trial, rung});
  for (const std::size_t trial : trials)
    if (!results.at(0).contains(trial)) legs.push_back({trial, 0});
  return legs;
}

std::size_t most_to_come(const RungSpec& spec, const std::set<std::size_t>& trials,
                         const RungResults& results) {
  const std::vector<RungState> states = states_of(spec, trials, results);
  const auto open = std::ranges::find(states, false, &RungState::settled);
  if (states.end() - open <= 1) return 0;  // from the last rung no trial continues
  // One more result: the best third has one more, or another one.
  return spec.in_step ? std::max<std::size_t>(open->expected / spec.keep_one_of, 1) : 1;
}

bool is_complete(const RungSpec& spec, const std::set<std::size_t>& trials,
                 const RungResults& results) {
  return std::ranges::all_of(states_of(spec, trials, results),
                             [](const RungState& state) { return state.settled; });
}

}  // namespace lockstep::study
