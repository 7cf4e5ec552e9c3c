// The threshold of a cascade, compared with trying them all.
#include "lockstep/infer/combined.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lockstep/base/rng.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::infer;

namespace {

std::uint64_t right_by(const std::vector<ThresholdRow>& judged, double above) {
  std::uint64_t right = 0;
  for (const ThresholdRow& row : judged)
    right += row.confidence > above ? row.first_right : row.second_right;
  return right;
}

/// The smallest of 0 and all confidences by which enough judged are right.
double by_trying(const std::vector<ThresholdRow>& judged, double points) {
  std::vector<double> all = {0};
  for (const ThresholdRow& row : judged) all.push_back(row.confidence);
  std::ranges::sort(all);
  const double second = static_cast<double>(right_by(judged, 2));
  for (const double above : all)
    if (static_cast<double>(right_by(judged, above)) >=
        second - points / 100 * static_cast<double>(judged.size()))
      return above;
  return 1;
}

/// Rows whose first is right as often as it is confident; some confidences are equal.
std::vector<ThresholdRow> random_rows(std::uint64_t seed, std::size_t count) {
  std::vector<ThresholdRow> judged;
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = draw4(seed, 0, i, Draw::synth).word;
    const double confidence = 0.1 + 0.9 * (words[0] % 50) / 50;
    judged.push_back({confidence, words[1] % 1000 < 1000 * confidence, words[2] % 100 < 90});
  }
  return judged;
}

}  // namespace

TEST_CASE("the fitted threshold divides the rows as the smallest of all that are good enough",
          "[members]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto judged = random_rows(seed, 1 + 7 * (seed % 60));
    for (const double points : {0.0, 0.2, 5.0, 100.0}) {
      const FittedThreshold got = fit_threshold(judged, points);
      const double want = by_trying(judged, points);
      CHECK((got.above >= 0 && got.above <= 1));
      for (const ThresholdRow& row : judged)
        CHECK((row.confidence > got.above) == (row.confidence > want));
      CHECK(got.right == right_by(judged, got.above));
      CHECK(got.second_right == right_by(judged, 2));
      CHECK(got.kept == static_cast<std::uint64_t>(std::ranges::count_if(
                            judged, [&](const auto& row) { return row.confidence > got.above; })));
    }
  }
}

TEST_CASE("a fitted threshold has few digits, and its text means the same number", "[members]") {
  const std::vector<ThresholdRow> judged = {
      {0.81234567891, false, true}, {0.8351, true, true}, {0.99, true, true}};
  const FittedThreshold fitted = fit_threshold(judged, 0);
  CHECK(fmt::format("{}", fitted.above) == "0.82");
  CHECK(fitted.kept == 2);
}

TEST_CASE("a first that is never right answers nothing, and one that always is everything",
          "[members]") {
  CHECK(fit_threshold({{0.3, false, true}, {1, false, true}}, 0.2).above == 1);
  CHECK(fit_threshold({{0.3, true, true}, {1, true, false}}, 0.2).above == 0);
  CHECK(fit_threshold({}, 0.2).kept == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(fit_threshold({{nan, true, true}, {0.5, true, true}}, 0).kept == 1);
}
