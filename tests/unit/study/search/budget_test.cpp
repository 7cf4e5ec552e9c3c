#include "lockstep/study/search/budget.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/study/search/search_folder.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;

namespace {

const std::string space_text =
    "[model-options.width]\nlow = 16\nhigh = 128\n[optim.lr]\nlow = 0.01\nhigh = 1\nlog = true\n";

config::Config base_of(std::size_t width) {
  config::Config base;
  base.data.train = base.data.val = "d";
  base.epochs = 9;
  base.model_options.width = width;
  return base;
}

/// A network's cost is its width squared.
PointCosts squares() {
  return {.flops =
              [](const config::Config& config) {
                const auto width = static_cast<double>(config.model_options.width);
                return width * width;
              },
          .latency_ms = {}};
}

std::size_t plan(const std::filesystem::path& folder, const std::string& budget,
                 std::size_t width = 16, PointSampler sampler = PointSampler::sobol) {
  const std::string text = space_text + "[budget]\n" + budget;
  return write_search(folder, {.sampler = sampler, .trials = 40, .epochs = {9}},
                      read_space(text, "space.toml"), text, base_of(width), squares());
}

/// The trials' files, by number.
std::map<std::size_t, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::size_t, std::string> files;
  const SearchFolder search(folder);
  for (const std::size_t number : search.numbers())
    files[number] = read_text(folder / "trials" / (std::to_string(number) + ".toml"));
  return files;
}

}  // namespace

TEST_CASE("each trial keeps the budget, and a draw that keeps it stays where it was", "[search]") {
  const Folder place("search");
  for (const auto sampler : {PointSampler::sobol, PointSampler::random}) {
    const std::string name = sampler == PointSampler::sobol ? "sobol" : "random";
    CHECK(plan(place.path / (name + "-free"), "flops = 16384\n", 16, sampler) == 0);
    const std::size_t refused = plan(place.path / name, "flops = 4096\n", 16, sampler);
    CHECK(refused > 10);
    CHECK(plan(place.path / (name + "-again"), "flops = 4096\n", 16, sampler) == refused);
    const auto free = files_of(place.path / (name + "-free")), kept = files_of(place.path / name);
    CHECK(kept == files_of(place.path / (name + "-again")));
    std::size_t moved = 0;
    const SearchFolder unlimited(place.path / (name + "-free")), limited(place.path / name);
    for (const auto& [number, trial] : limited.trials()) {
      CHECK(trial.model_options.width <= 64);
      const bool keeps = unlimited.trials().at(number).model_options.width <= 64;
      CHECK((free.at(number) == kept.at(number)) == keeps);
      moved += keeps ? 0 : 1;
    }
    CHECK((moved > 5 && moved <= refused));
  }
}

TEST_CASE("a budget that no point keeps is an error with the least that was found", "[search]") {
  const Folder place("search");
  CHECK_THROWS_WITH(plan(place.path / "a", "flops = 100\n", 8),
                    Contains("budget.flops = 100: none of 1000 points that were drawn for trial 1 "
                             "keeps it; the least is 256 (model-options.width = 16, optim.lr = "));
  CHECK_THROWS_WITH(plan(place.path / "a", "flops = 4096\n", 65),
                    Contains("the base has flops 4225, and budget.flops is 4096"));
  CHECK_FALSE(std::filesystem::exists(place.path / "a"));
  CHECK_THROWS_WITH(plan(place.path / "a", "flop = 4096\n"),
                    Contains("space.toml, line 9: 'budget.flop' is not one of budget.flops, "
                             "budget.latency-ms; did you mean"));
  CHECK_THROWS_WITH(plan(place.path / "a", "latency-ms = 0\n"),
                    Contains("space.toml, line 9: budget.latency-ms takes a number above 0"));
}

TEST_CASE("of several limits the first that is not kept is named", "[search]") {
  PointCosts costs = squares();
  costs.latency_ms = [](const config::Config&) { return 3.0; };
  const config::Config config = base_of(10);
  CHECK(excess_of({.flops = 100, .latency_ms = 3}, costs, config).limit.empty());
  const Excess late = excess_of({.flops = 100, .latency_ms = 2}, costs, config);
  CHECK((late.limit == "latency-ms" && late.has == 3 && late.most == 2));
  CHECK(excess_of({.flops = 99, .latency_ms = 2}, costs, config).limit == "flops");
  CHECK(excess_of({.latency_ms = 2}, squares(), config).limit.empty());  // it is not measured
}
