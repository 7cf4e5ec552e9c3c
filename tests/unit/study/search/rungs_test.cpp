#include "lockstep/study/search/rungs.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::study;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::set<std::size_t> trials(std::size_t count) {
  std::set<std::size_t> all;
  for (std::size_t trial = 0; trial < count; ++trial) all.insert(trial);
  return all;
}

RungSpec rungs(bool in_step, std::size_t count = 4) {
  RungSpec spec{.epochs = rung_epochs(1, 3, 27), .in_step = in_step};
  spec.epochs.resize(count);
  return spec;
}

/// A trial's score at a rung, always the same; some have none.
double score_of(const Leg& leg, std::uint64_t seed) {
  std::mt19937_64 draws(seed * 1000 + leg.trial * 7 + leg.rung);
  const double noise = std::uniform_real_distribution()(draws);
  if (draws() % 16 == 0) return none;
  return static_cast<double>(leg.trial * 37 % 101) / 101 + 0.3 * noise;
}

/// What several workers that take turns at random find, one of whom may vanish with its leg.
RungResults trained(const RungSpec& spec, std::size_t count, std::size_t workers,
                    std::uint64_t seed, std::uint64_t order) {
  std::mt19937_64 draws(order);
  RungResults results(spec.epochs.size());
  std::vector<Leg> held;
  std::set<Leg> ever;
  for (std::size_t turn = 0;; ++turn) {
    REQUIRE(turn < 100 * count);
    std::vector<Leg> open;
    for (const Leg& leg : due(spec, trials(count), results))
      if (std::ranges::find(held, leg) == held.end()) open.push_back(leg);
    const bool may_take = held.size() < workers && !open.empty();
    if (!may_take && held.empty()) break;
    if (may_take && (held.empty() || draws() % 2 == 0)) {
      CHECK(ever.insert(open.front()).second);
      held.push_back(open.front());
      continue;
    }
    const std::size_t which = draws() % held.size();
    const Leg leg = held[which];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    if (draws() % 10 == 0) {
      ever.erase(leg);  // its worker was killed
      continue;
    }
    const std::vector<Leg> before = due(spec, trials(count), results);
    const std::size_t most = most_to_come(spec, trials(count), results);
    CHECK(results[leg.rung].emplace(leg.trial, score_of(leg, seed)).second);
    const std::size_t after = due(spec, trials(count), results).size();
    // A leg that is no more among the best was not due.
    const auto own = static_cast<std::size_t>(std::ranges::count(before, leg));
    CHECK(after <= before.size() - own + most);
  }
  CHECK(is_complete(spec, trials(count), results));
  return results;
}

/// NaN equals NaN here.
bool same(const RungResults& a, const RungResults& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return std::ranges::equal(one, other, [](const auto& x, const auto& y) {
      return x.first == y.first &&
             (x.second == y.second || (std::isnan(x.second) && std::isnan(y.second)));
    });
  });
}

}  // namespace

TEST_CASE("rungs grow by a factor, and the last is the whole length", "[search]") {
  CHECK(rung_epochs(1, 3, 27) == std::vector<std::uint64_t>{1, 3, 9, 27});
  CHECK(rung_epochs(2, 3, 20) == std::vector<std::uint64_t>{2, 6, 18, 20});
  CHECK(rung_epochs(5, 2, 5) == std::vector<std::uint64_t>{5});
  CHECK_THROWS_AS(rung_epochs(0, 3, 9), InputError);
  CHECK_THROWS_AS(rung_epochs(10, 3, 9), InputError);
}

TEST_CASE("equal scores are ranked by number, and trials without a score are last", "[search]") {
  CHECK(ranked({{5, 0.5}, {2, 0.5}, {9, none}, {1, 0.1}, {7, 0.9}}) ==
        std::vector<std::size_t>{7, 2, 5, 1, 9});
}

TEST_CASE("promotions come before new trials, those of high rungs first", "[search]") {
  RungResults results(4);
  for (std::size_t trial = 0; trial < 9; ++trial) results[0][trial] = static_cast<double>(trial);
  results[1] = {{8, 0.8}, {7, 0.9}, {6, 0.7}};
  const std::vector<Leg> legs = due(rungs(false), trials(12), results);
  CHECK(legs == std::vector<Leg>{{7, 2}, {9, 0}, {10, 0}, {11, 0}});
  results[1].erase(6);
  CHECK(due(rungs(false), trials(12), results).front() == Leg{6, 1});
}

TEST_CASE("in step no trial is promoted before its rung is complete", "[search]") {
  RungResults results(4);
  for (std::size_t trial = 0; trial < 8; ++trial) results[0][trial] = static_cast<double>(trial);
  CHECK(due(rungs(true), trials(9), results) == std::vector<Leg>{{8, 0}});
  results[0][8] = 0.5;
  CHECK(due(rungs(true), trials(9), results) == std::vector<Leg>{{7, 1}, {6, 1}, {5, 1}});
}

TEST_CASE("one result makes no more legs due than that", "[search]") {
  RungResults results(4);
  for (std::size_t trial = 0; trial < 8; ++trial) results[0][trial] = static_cast<double>(trial);
  // trained() checks it in all histories.
  CHECK(most_to_come(rungs(true), trials(9), results) == 3);
  CHECK(most_to_come(rungs(false), trials(9), results) == 1);
  results[0][8] = 8;
  for (const std::size_t trial : {6, 7, 8}) results[1][trial] = static_cast<double>(trial);
  results[2][8] = 8;
  CHECK(most_to_come(rungs(true), trials(9), results) == 0);
}

TEST_CASE("few trials reach the last rung, too, and those without a score never continue",
          "[search]") {
  RungResults results(2);
  const RungSpec spec = rungs(false, 2);
  results[0] = {{0, 0.1}, {1, none}};
  CHECK(due(spec, trials(2), results) == std::vector<Leg>{{0, 1}});
  results[0] = {{0, none}, {1, none}};
  CHECK(due(spec, trials(2), results).empty());
  CHECK(is_complete(spec, trials(2), results));
  for (const bool in_step : {false, true})
    for (const std::size_t count : {1, 2, 5, 64})
      CHECK_FALSE(trained(rungs(in_step), count, 3, 1, 1).back().empty());
}

TEST_CASE("a search in step finds the same, whatever the workers and their order", "[search]") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const RungResults alone = trained(rungs(true), 64, 1, seed, 0);
    CHECK(alone[1].size() == 21);
    for (const std::size_t workers : {1, 3, 8, 100})
      CHECK(same(trained(rungs(true), 64, workers, seed, workers), alone));
  }
}

TEST_CASE("in any history each promotion was among the best when it was made", "[search]") {
  // due() is a pure function of results, so a history that is replayed makes the same decisions.
  for (std::uint64_t order = 0; order < 40; ++order) {
    const RungResults results = trained(rungs(false), 100, 1 + order % 9, 3, order);
    CHECK(results[0].size() == 100);
    for (std::size_t rung = 1; rung < 4; ++rung) {
      // Each rung has at least its part; more came only by results that were the best for a while.
      CHECK(results[rung].size() >= std::max<std::size_t>(1, results[rung - 1].size() / 3) - 1);
      for (const auto& [trial, score] : results[rung]) {
        CHECK(results[rung - 1].contains(trial));
        CHECK_FALSE(std::isnan(results[rung - 1].at(trial)));
      }
      const std::vector<std::size_t> order_below = ranked(results[rung - 1]);
      CHECK(results[rung].contains(order_below.front()));
    }
  }
}
