#include "ports/cpu/units/head_runner.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cpu;

TEST_CASE("the loss's gradient is its central difference, with smoothing and a mixed label",
          "[loss]") {
  std::vector<float> logits = {0.3f, -1.2f, 2.5f, 0.9f, -0.4f};
  const data::Target target{2, 4, 0.75f};
  std::vector<float> gradient(5);
  Metrics metrics;
  cross_entropy(logits.data(), 5, target, 0.1f, 3, metrics, gradient.data());
  for (std::size_t k = 0; k < 5; ++k) {
    const float before = logits[k], step = 0x1p-8f;
    Metrics above, below;
    logits[k] = before + step;
    cross_entropy(logits.data(), 5, target, 0.1f, 1, above, nullptr);
    logits[k] = before - step;
    cross_entropy(logits.data(), 5, target, 0.1f, 1, below, nullptr);
    logits[k] = before;
    CHECK(gradient[k] == Approx(3 * (above.loss - below.loss) / (2 * step)).margin(1e-5));
  }
}

TEST_CASE("equal logits have loss log K, and the lower index wins", "[loss]") {
  const std::vector<float> logits(8, 0.5f);
  Metrics metrics;
  for (int label = 0; label < 8; ++label)
    cross_entropy(logits.data(), 8, {label, label, 1}, 0, 1, metrics, nullptr);
  CHECK(metrics.loss == Approx(8 * std::log(8.0)));
  CHECK(metrics.rows == 8);
  CHECK(metrics.top1 == 1);
  CHECK(metrics.top5 == 5);
}

TEST_CASE("huge logits do not overflow", "[loss]") {
  const std::vector<float> logits = {1e4f, -1e4f, 0};
  Metrics metrics;
  std::vector<float> gradient(3);
  cross_entropy(logits.data(), 3, {1, 1, 1}, 0, 1, metrics, gradient.data());
  CHECK(metrics.loss == Approx(2e4));
  CHECK(gradient == std::vector<float>{1, -1, 0});
}

TEST_CASE("a padding row counts nowhere and a NaN is never right", "[loss]") {
  std::vector<float> logits = {1, 2, 3}, gradient = {9, 9, 9};
  Metrics metrics;
  cross_entropy(logits.data(), 3, {-1, -1, 1}, 0, 1, metrics, gradient.data());
  CHECK((metrics.rows == 0 && metrics.loss == 0 && gradient == std::vector<float>{0, 0, 0}));
  logits[2] = std::numeric_limits<float>::quiet_NaN();
  cross_entropy(logits.data(), 3, {2, 2, 1}, 0, 1, metrics, nullptr);
  CHECK((metrics.rows == 1 && metrics.top1 == 0 && std::isnan(metrics.loss)));
}
