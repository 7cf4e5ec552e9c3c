#include "lockstep/study/search/best.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/study/search/show.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;

namespace {

std::vector<double> drawn(std::mt19937_64& draws, double mean, std::size_t count) {
  std::vector<double> scores;
  std::normal_distribution<double> noise(mean, 0.002);
  for (std::size_t k = 0; k < count; ++k) scores.push_back(noise(draws));
  return scores;
}

/// Of 100 draws of trials with these means, how many have a winner.
std::size_t winners(const std::vector<double>& means, std::size_t repeats) {
  std::mt19937_64 draws(1);
  std::size_t count = 0;
  for (int draw = 0; draw < 100; ++draw) {
    std::vector<RepeatedTrial> trials;
    for (std::size_t k = 0; k < means.size(); ++k)
      trials.push_back({k, drawn(draws, means[k], repeats)});
    count += best_of(trials).winner.has_value();
  }
  return count;
}

/// A search of `count` trials over the learning rate, without any result.
void write_a_search(const std::filesystem::path& folder, std::size_t count,
                    SearchMode mode = SearchMode::sync) {
  config::Config base;
  base.data.train = base.data.val = "d";
  base.epochs = 9;
  const std::string space = "[optim.lr]\nlow = 0.01\nhigh = 1\nlog = true\n";
  write_search(folder, {.trials = count, .epochs = {1, 3, 9}, .mode = mode},
               read_space(space, "space.toml"), space, base);
}

void add_result(const std::filesystem::path& folder, LegResult leg) {
  leg.score_name = "top-1";
  leg.ranks = 1;
  write_file(
      folder / "results" / (std::to_string(leg.trial) + "." + std::to_string(leg.rung) + ".json"),
      fields_to_json(leg));
}

}  // namespace

TEST_CASE("the chance of a difference is that of Welch's test", "[search]") {
  // By SciPy's ttest_ind(equal_var=False).
  CHECK(chance_of_difference({0.91, 0.93, 0.92, 0.90, 0.94}, {0.88, 0.90, 0.89}) ==
        Approx(0.01717785066716926).epsilon(1e-6));
  CHECK(chance_of_difference({1, 2}, {5, 9}) == Approx(0.20544915073088874).epsilon(1e-6));
  CHECK(chance_of_difference({1, 1}, {1, 1}) == 1);
  CHECK(chance_of_difference({2, 2}, {1, 1}) == 0);
  CHECK(chance_of_difference({2}, {1, 1}) == 1);
}

TEST_CASE("equal trials are not separated in at least 95 of 100 draws", "[search]") {
  CHECK(winners({0.9, 0.9}, 5) <= 5);
  CHECK(winners({0.9, 0.9, 0.9, 0.9}, 5) <= 5);
  CHECK(winners({0.9, 0.9, 0.8}, 3) <= 5);
  CHECK(winners({0.9, 0.9, 0.9}, 20) <= 5);
}

TEST_CASE("a trial that is clearly better wins, and one alone does not", "[search]") {
  CHECK(winners({0.9, 0.92}, 5) >= 95);
  CHECK(winners({0.9, 0.92, 0.91, 0.88}, 8) >= 95);
  CHECK(winners({0.9}, 5) == 0);
  const BestOf best = best_of({{4, {0.1, 0.2}}, {7, {0.8, 0.9}}, {2, {}}});
  CHECK(best.order == std::vector<std::size_t>{7, 4, 2});
  CHECK_FALSE(best_of({{4, {}}, {7, {}}}).winner);
}

TEST_CASE("rank correlation shares the places of equal values", "[search]") {
  CHECK(rank_correlation({1, 2, 3, 4, 5, 6}, {2, 1, 4, 3, 6, 5}) == Approx(0.8285714285714287));
  CHECK(rank_correlation({1, 1, 2, 3}, {4, 2, 2, 1}) == Approx(-0.8333333333333335));
  CHECK(rank_correlation({1, 10, 100}, {3, 2, 1}) == Approx(-1));
  CHECK(std::isnan(rank_correlation({1, 1}, {1, 2})));
}

TEST_CASE("a search is placed by rung, then score, and trials without a score are last",
          "[search]") {
  const Folder place("search");
  const std::filesystem::path folder = place.path / "s";
  write_a_search(folder, 5);
  add_result(folder, {.trial = 0, .rung = 0, .epoch = 1, .score = 0.5});
  add_result(folder, {.trial = 1, .rung = 0, .epoch = 1, .score = 0.9});
  add_result(folder, {.trial = 1, .rung = 1, .epoch = 3, .score = 0.4});
  add_result(folder, {.trial = 2, .rung = 0, .epoch = 1, .end = LegEnd::diverged, .score = NAN});
  add_result(folder, {.trial = 3, .rung = 0, .epoch = 1, .score = 0.6});
  const SearchFolder search(folder);
  CHECK(placed(search) == std::vector<std::size_t>{1, 3, 0, 2});
  CHECK_THAT(search_text(search), Contains("first: trial 1 with top-1 0.4000 after 3 epochs"));
  CHECK_THAT(search_text(search), Contains("diverged"));
  CHECK_THROWS_WITH(optuna_journal(search), Contains("no trial has come to its last epoch"));
  CHECK(search_page(search).find("http://") == search_page(search).find("http://www.w3.org"));
}

TEST_CASE("where less is better the least score is first, also for Optuna", "[search]") {
  const Folder place("search");
  const std::filesystem::path folder = place.path / "s";
  write_a_search(folder, 3);
  for (std::size_t trial = 0; trial < 3; ++trial)
    add_result(folder, {.trial = trial,
                        .rung = 2,
                        .epoch = 9,
                        .more_is_better = false,
                        .score = 1 + double(trial)});
  for (std::size_t trial = 0; trial < 3; ++trial)
    add_result(folder,
               {.trial = trial, .rung = 0, .epoch = 1, .more_is_better = false, .score = 9});
  const SearchFolder search(folder);
  CHECK(placed(search) == std::vector<std::size_t>{0, 1, 2});
  const std::string journal = optuna_journal(search);
  CHECK_THAT(journal, Contains("\"study_name\":\"s\",\"directions\":[1]"));
  CHECK_THAT(journal, Contains("\"state\":1,\"value\":1.0"));
}

TEST_CASE("which trials are repeated is decided once, and the base is among them", "[search]") {
  const Folder place("search");
  const std::filesystem::path folder = place.path / "s";
  write_a_search(folder, 5);
  CHECK_THROWS_WITH(repeated_trials(SearchFolder(folder), 2), Contains("no trial has a score"));
  for (std::size_t trial = 0; trial < 5; ++trial)
    add_result(folder, {.trial = trial, .rung = 0, .epoch = 1, .score = 0.1 * double(trial)});
  CHECK(repeated_trials(SearchFolder(folder), 2) == std::vector<std::size_t>{4, 3, 0});
  add_result(folder, {.trial = 1, .rung = 1, .epoch = 3, .score = 0.9});
  SearchFolder search(folder);
  CHECK(repeated_trials(search, 3) == std::vector<std::size_t>{4, 3, 0});
  const auto list = repeats_of(search, {4, 0}, 2);
  list->look();
  std::set<std::uint64_t> seeds;
  for (const std::size_t piece : list->due()) seeds.insert(list->training(piece).keys.seed);
  CHECK(list->due().size() == 4);
  CHECK(seeds == std::set<std::uint64_t>{2, 3});
}

TEST_CASE("a result of another search, or a torn one, is an error that names it", "[search]") {
  const Folder place("search");
  const std::filesystem::path folder = place.path / "s";
  write_a_search(folder, 2);
  add_result(folder, {.trial = 0, .rung = 7, .epoch = 1, .score = 0.5});
  CHECK_THROWS_WITH(SearchFolder(folder), Contains("0.7.json: rung 7 is not of this search"));
  write_file(folder / "results" / "0.7.json", "{\"trial\":");
  CHECK_THROWS_WITH(SearchFolder(folder), Contains("0.7.json: is not JSON"));
  // What is being written has no such name yet.
  std::filesystem::rename(folder / "results" / "0.7.json", folder / "results" / "0.7.json.tmp1-1");
  CHECK(SearchFolder(folder).results().empty());
}

TEST_CASE("the same plan writes the same trials, and no plan replaces another", "[search]") {
  const Folder place("search");
  write_a_search(place.path / "a", 20);
  write_a_search(place.path / "b", 20);
  for (const std::string& name : names_in(place.path / "a" / "trials"))
    CHECK(read_text(place.path / "a" / "trials" / name) ==
          read_text(place.path / "b" / "trials" / name));
  CHECK_THROWS_WITH(write_a_search(place.path / "a", 20), Contains("exists already"));
  const SearchFolder search(place.path / "a");
  CHECK(search.trials().size() == 20);
  CHECK(config::changed_keys(search.trials().at(0), search.base()).empty());
}
