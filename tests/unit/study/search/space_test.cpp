#include "lockstep/study/search/space.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/keys.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Contains;

namespace {

const char* const a_space = R"(
[optim.lr]
low = 0.01
high = 1
log = true
[optim]
rule.choices = ["sgd", "lars"]
trust = {low = 0.0005, high = 0.01, log = true, when = "optim.rule = lars"}
[optim.warmup-epochs]
low = 0
high = 5
integer = true
[model-options.width]
low = 8
high = 64
[batch]
choices = [32, 64, 128]
)";

SearchSpace read(const std::string& text) { return read_space(text, "space.toml"); }

void refuses(const std::string& text, const std::string& why) {
  INFO(text);
  CHECK_THROWS_WITH(read(text), Contains(why) && Catch::StartsWith("space.toml"));
}

}  // namespace

TEST_CASE("each point of a space is a training, inside of the ranges", "[search]") {
  const SearchSpace space = read(a_space);
  REQUIRE(space.dimensions.size() == 6);
  for (const PointSampler sampler : {PointSampler::sobol, PointSampler::random}) {
    std::map<std::string, std::set<std::string>> seen;
    for (std::uint32_t index = 0; index < 256; ++index) {
      const PointValues point = point_of(space, sampler, 7, index);
      config::Config keys;
      for (const auto& [key, value] : point) {
        config::set_key(keys, key, value);
        seen[key].insert(value);
      }
      CHECK((keys.optim.lr >= 0.01f && keys.optim.lr <= 1));
      CHECK(keys.optim.warmup_epochs == std::floor(keys.optim.warmup_epochs));
      CHECK((keys.model_options.width >= 8 && keys.model_options.width <= 64));
      const bool lars = keys.optim.rule == optim::Rule::lars;
      CHECK((lars || keys.optim.trust == config::Config{}.optim.trust));
    }
    CHECK(seen["batch"] == std::set<std::string>{"32", "64", "128"});
    CHECK(seen["optim.warmup-epochs"].size() == 6);
    CHECK(seen["optim.rule"].size() == 2);
    CHECK(seen["optim.lr"].size() > 200);
  }
}

TEST_CASE("a point is a function of seed and index alone, and no two are the same", "[search]") {
  const SearchSpace space = read("[optim.lr]\nlow = 0\nhigh = 1\n");
  for (const PointSampler sampler : {PointSampler::sobol, PointSampler::random}) {
    std::set<double> all;
    for (std::uint32_t index = 0; index < 4096; ++index)
      all.insert(coordinate(sampler, 3, index, 0));
    CHECK(all.size() == 4096);
    CHECK(point_of(space, sampler, 3, 17) == point_of(space, sampler, 3, 17));
    CHECK(point_of(space, sampler, 3, 17) != point_of(space, sampler, 4, 17));
  }
  // The values of a seed are part of its meaning.
  CHECK(point_of(space, PointSampler::sobol, 1, 0).at("optim.lr") == "0.4047");
  CHECK(point_of(space, PointSampler::random, 1, 0).at("optim.lr") == "0.8903");
}

TEST_CASE("each part of each coordinate has one of Sobol's points", "[search]") {
  for (const std::uint64_t seed : {1, 2, 3})
    for (std::size_t dimension = 0; dimension < most_sobol_dimensions; ++dimension)
      for (const std::uint32_t count : {2, 16, 256}) {
        std::set<int> parts;
        for (std::uint32_t index = 0; index < count; ++index)
          parts.insert(
              static_cast<int>(coordinate(PointSampler::sobol, seed, index, dimension) * count));
        CHECK(parts.size() == count);
        CHECK((*parts.begin() == 0 && *parts.rbegin() == static_cast<int>(count) - 1));
      }
}

TEST_CASE("the first two of Sobol's coordinates fill each elementary box once", "[search]") {
  for (const unsigned wide : {0, 1, 2, 3, 4, 5, 6}) {
    std::set<std::pair<int, int>> boxes;
    for (std::uint32_t index = 0; index < 64; ++index)
      boxes.emplace(
          static_cast<int>(coordinate(PointSampler::sobol, 5, index, 0) * (1 << wide)),
          static_cast<int>(coordinate(PointSampler::sobol, 5, index, 1) * (1 << (6 - wide))));
    CHECK(boxes.size() == 64);
  }
}

TEST_CASE("all pairs of Sobol's coordinates but one fill equal boxes equally", "[search]") {
  // 4096 points in 16 x 16 boxes. That one pair is uneven is known of the directions.
  std::size_t uneven = 0;
  for (std::size_t a = 0; a < most_sobol_dimensions; ++a)
    for (std::size_t b = 0; b < a; ++b) {
      std::map<int, int> boxes;
      for (std::uint32_t index = 0; index < 4096; ++index)
        ++boxes[static_cast<int>(coordinate(PointSampler::sobol, 1, index, a) * 16) * 16 +
                static_cast<int>(coordinate(PointSampler::sobol, 1, index, b) * 16)];
      bool even = boxes.size() == 256;
      for (const auto& [box, points] : boxes) even = even && points == 16;
      uneven += !even;
    }
  CHECK(uneven == 1);
}

TEST_CASE("what a space says wrongly is named with its line and key", "[search]") {
  refuses("", "names no key");
  refuses("[optim.lrr]\nlow = 0.1\nhigh = 1\n", "line 2: unknown key 'optim.lrr'; did you mean");
  refuses("[optim.lr]\nlow = 1\nhigh = 0.1\n", "optim.lr: from low = 1 to high = 0.1 there is");
  refuses("[optim.lr]\nlow = 1\nhigh = 1\n", "there is nothing");
  refuses("[optim.lr]\nlow = 0\nhigh = 1\nlog = true\n", "log = true needs low above 0, not 0");
  refuses("[optim.lr]\nlow = -1\nhigh = 1\n", "optim.lr");
  refuses("[optim.lr]\nlow = 0.1\n", "optim.lr: needs low and high, or choices");
  refuses("[optim.lr]\nlowest = 0.1\n", "'lowest' is not one of low, high");
  refuses("[optim]\nlr = 0.1\n", "write [optim.lr] and below it low and high");
  refuses("[optim.lr]\nlow = \"a\"\nhigh = 1\n", "line 2: optim.lr.low takes a number");
  refuses("[batch]\nlow = 1.5\nhigh = 8\n", "batch: takes whole numbers, not 1.5");
  refuses("[epochs]\nlow = 1\nhigh = 8\n", "epochs: is the same in all trials");
  refuses("[optim.rule]\nchoices = [\"sgd\", \"sdg\"]\n", "'sdg'");
  refuses("[optim.rule]\nchoices = [\"sgd\"]\n", "needs two or more, each once");
  refuses("[optim.rule]\nchoices = [\"sgd\", \"lars\"]\nlow = 1\n", "neither low");
  refuses("[optim.rule]\nlow = 1\nhigh = 2\n", "optim.rule");
  const std::string rule =
      "[optim.rule]\nchoices = [\"sgd\", \"lars\"]\n[optim.trust]\n"
      "low = 0.001\nhigh = 0.01\nwhen = ";
  refuses(rule + "\"optim.rul = lars\"", "'optim.rul' is no key above it in this space; did you");
  refuses(rule + "\"optim.rule = lamb\"", "'lamb' is not one of the choices of optim.rule");
  refuses(rule + "\"lars\"", "takes a text like");
  refuses("[optim.lr]\nlow = 0.1\nhigh = 1\nwhen = \"optim.lr = 1\"\n", "no key above it");
}
