#include "lockstep/backend/logits.hpp"
#include "lockstep/backend/output_loss.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace lockstep;
using namespace lockstep::backend;

namespace {

void cross_entropy(const float* logits, std::size_t classes, const data::Target& target,
                   float smoothing, float scale, Metrics& metrics, float* gradient) {
  row_loss({.smoothing = smoothing}, {logits, classes}, target, nullptr, scale, metrics, gradient);
}

}  // namespace

TEST_CASE(
    "the loss's gradient is its central difference, with smoothing, a mixed label and weights",
    "[loss]") {
  const LossSpec spec{
      .smoothing = 0.1f,
      .weights = GENERATE(std::vector<float>{}, std::vector<float>{0.5f, 0, 2, 1.25f, 7})};
  std::vector<float> logits = {0.3f, -1.2f, 2.5f, 0.9f, -0.4f};
  const data::Target target{2, 4, 0.75f};
  std::vector<float> gradient(5);
  Metrics metrics;
  row_loss(spec, logits, target, nullptr, 3, metrics, gradient.data());
  for (std::size_t k = 0; k < 5; ++k) {
    const float before = logits[k], step = 0x1p-8f;
    Metrics above, below;
    logits[k] = before + step;
    row_loss(spec, logits, target, nullptr, 1, above, nullptr);
    logits[k] = before - step;
    row_loss(spec, logits, target, nullptr, 1, below, nullptr);
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

// By the formulas that PyTorch 2 documents for binary_cross_entropy_with_logits, mse_loss and
// huber_loss, computed in Python's double.
TEST_CASE("losses of labels and values are PyTorch's, to 1e-12 in double", "[loss]") {
  struct Constant {
    double output, wanted, loss, gradient;
  };
  const Constant labels[] = {
      {-30.0, 0.0, 9.3576229688397368e-14, 9.3576229688392989e-14},
      {-2.75, 1.0, 2.8119675890031988, -0.93991334982599239},
      {-0.5, 0.25, 0.59907698418010669, 0.12754066879814541},
      {0.0, 1.0, 0.69314718055994529, -0.5},
      {0.125, 0.0, 0.7575990353171691, 0.53120937337375629},
      {3.5, 0.75, 0.90475041827262059, 0.22068776924864364},
      {20.0, 1.0, 2.0611536203143808e-09, -2.0611536921677498e-09},
  };
  for (const auto& [logit, share, loss, gradient] : labels) {
    const arithmetic::OutputLoss got = arithmetic::label_loss(logit, share, 0);
    CHECK(got.loss == Approx(loss).epsilon(1e-12));
    CHECK(got.gradient == Approx(gradient).epsilon(1e-12));
  }
  struct Both {
    double output, wanted, square, square_gradient, huber, huber_gradient;  // Huber: delta 0.75
  };
  const Both values[] = {
      {0.5, 0.25, 0.0625, 0.5, 0.03125, 0.25},
      {0.5, -2.0, 6.25, 5, 1.59375, 0.75},
      {-3.0, 1.0, 16, -8, 2.71875, -0.75},
      {1.0, 0.25, 0.5625, 1.5, 0.28125, 0.75},
      {2.0, 2.0, 0, 0, 0, 0},
  };
  for (const Both& of : values) {
    const arithmetic::OutputLoss square = arithmetic::value_loss(of.output, of.wanted, 0),
                                 huber = arithmetic::value_loss(of.output, of.wanted, 0.75);
    CHECK(square.loss == Approx(of.square).epsilon(1e-12));
    CHECK(square.gradient == Approx(of.square_gradient).epsilon(1e-12));
    CHECK(huber.loss == Approx(of.huber).epsilon(1e-12));
    CHECK(huber.gradient == Approx(of.huber_gradient).epsilon(1e-12));
  }
  CHECK(arithmetic::label_loss(1e4, 0, 0).loss == 1e4);
  CHECK(arithmetic::label_loss(-1e4, 0, 0).gradient == 0);
  // Smoothing moves a label towards 1/2.
  CHECK(arithmetic::label_loss(2, 1, 0.2).loss ==
        Approx(arithmetic::label_loss(2, 0.9, 0).loss).epsilon(1e-15));
}

TEST_CASE("the gradient of labels and values is the central difference of the loss", "[loss]") {
  for (const LossSpec& spec :
       {LossSpec{.task = data::Task::labels, .smoothing = 0.1f},
        LossSpec{.task = data::Task::labels, .smoothing = 0.1f, .weights = {3, 0.5f, 8, 1, 0}},
        LossSpec{.task = data::Task::values},
        LossSpec{.task = data::Task::values, .delta = 0.75f}}) {
    std::vector<float> outputs = {0.3f, -1.2f, 2.5f, 0.9f, -0.4f}, gradient(5);
    const std::vector<float> wanted = {1, 0, 0.25f, std::numeric_limits<float>::quiet_NaN(), 0};
    Metrics metrics;
    row_loss(spec, outputs, {0, 0, 1}, wanted.data(), 3, metrics, gradient.data());
    CHECK(gradient[3] == 0);
    for (std::size_t k = 0; k < 5; ++k) {
      const float before = outputs[k], step = 0x1p-8f;
      Metrics above, below;
      outputs[k] = before + step;
      row_loss(spec, outputs, {0, 0, 1}, wanted.data(), 1, above, nullptr);
      outputs[k] = before - step;
      row_loss(spec, outputs, {0, 0, 1}, wanted.data(), 1, below, nullptr);
      outputs[k] = before;
      CHECK(gradient[k] == Approx(3 * (above.loss - below.loss) / (2 * step)).margin(1e-5));
    }
  }
}

TEST_CASE("an output that is not known has no loss, no gradient and no count, whatever it says",
          "[loss]") {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  for (const data::Task task : {data::Task::labels, data::Task::values}) {
    const std::vector<float> outputs = {1e4f, unknown, -2}, wanted = {unknown, unknown, 1};
    std::vector<float> gradient = {9, 9, 9};
    Metrics with, alone;
    row_loss({.task = task}, outputs, {0, 0, 1}, wanted.data(), 1, with, gradient.data());
    CHECK(gradient[0] == 0);
    CHECK(gradient[1] == 0);
    row_loss({.task = task}, {&outputs[2], 1}, {0, 0, 1}, &wanted[2], 1, alone, nullptr);
    CHECK(with.loss == Approx(alone.loss / 3).epsilon(1e-15));  // by the number of all outputs
    CHECK(with.sums == alone.sums);
    CHECK(with.rows == 1);
    Metrics padding;
    row_loss({.task = task}, outputs, {}, wanted.data(), 1, padding, gradient.data());
    CHECK((padding.rows == 0 && padding.loss == 0 && gradient == std::vector<float>{0, 0, 0}));
  }
}

TEST_CASE("huge outputs do not overflow, and one that is not a number is told", "[loss]") {
  const std::vector<float> outputs = {1e4f, -1e4f}, wanted = {0, 1};
  std::vector<float> gradient(2);
  Metrics metrics;
  row_loss({.task = data::Task::labels}, outputs, {0, 0, 1}, wanted.data(), 2, metrics,
           gradient.data());
  CHECK(metrics.loss == 1e4);
  CHECK(gradient == std::vector<float>{1, -1});
  const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN(), 0};
  row_loss({.task = data::Task::labels}, bad, {0, 0, 1}, wanted.data(), 1, metrics, nullptr);
  CHECK(std::isnan(metrics.loss));
}

TEST_CASE("known labels are counted where a logit above 0 says one", "[loss]") {
  const std::vector<float> outputs = {1, 1, -1, -1, 0}, wanted = {1, 0, 1, 0, 1};
  Metrics metrics;
  row_loss({.task = data::Task::labels}, outputs, {0, 0, 1}, wanted.data(), 1, metrics, nullptr);
  CHECK(metrics.sums == std::array<double, 3>{1, 1, 2});
}

// By the formulas that PyTorch 2 documents for cross_entropy(logits, shares, weight) and
// binary_cross_entropy_with_logits(logits, shares, pos_weight), computed in Python's double.
TEST_CASE("weighted losses are PyTorch's, to 1e-12, and their gradients to float's rounding",
          "[loss]") {
  const std::vector<float> logits = {0.25f, -1.5f, 2.5f, 0.875f};
  const std::vector<float> weights = {0.5f, 3, 1.25f, 7};
  const auto check = [&](const LossSpec& spec, const std::vector<float>& wanted, double loss,
                         const std::vector<double>& gradient) {
    Metrics metrics;
    std::vector<float> got(4);
    row_loss(spec, logits, {1, 2, 0.75f}, wanted.data(), 1, metrics, got.data());
    CHECK(metrics.loss == Approx(loss).epsilon(1e-12));
    for (std::size_t k = 0; k < 4; ++k) CHECK(got[k] == Approx(gradient[k]).epsilon(1e-7));
  };
  check({.weights = weights}, {}, 9.712647328363765,
        {0.2045131648004666, -2.214460940865092, 1.6278668826844842, 0.3820808933801416});
  check({.smoothing = 0.125f, .weights = weights}, {}, 9.366308559980176,
        {0.19262925927852392, -2.0263108361248197, 1.6633613988311515, 0.1703201780151442});
  check({.task = data::Task::labels, .weights = weights}, {1, 0.25f, std::nanf(""), 1},
        1.0385504234872351, {-0.05472793738927524, -0.11909042857261637, 0.0, -0.5148762012852304});
}

TEST_CASE("weights of 1 are no weights, to the bit", "[loss]") {
  const std::vector<float> logits = {0.3f, -1.2f, 2.5f}, wanted = {1, 0, 0.75f};
  for (const data::Task task : {data::Task::classes, data::Task::labels}) {
    std::vector<float> gradient(3), same(3);
    Metrics metrics, plain;
    const data::Target target{2, 1, 1};
    row_loss({.task = task, .weights = {1, 1, 1}}, logits, target, wanted.data(), 3, metrics,
             gradient.data());
    row_loss({.task = task}, logits, target, wanted.data(), 3, plain, same.data());
    CHECK(metrics.loss == plain.loss);
    CHECK(gradient == same);
  }
}
