// A network that only runs forward: what it says of rows, with targets and without.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/infer/classifier.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::infer;
using namespace lockstep::test;

namespace {

constexpr std::size_t few_rows = 5;

std::unique_ptr<Backend> cpu() { return make_cpu_backend({std::vector<std::vector<int>>(2)}); }

/// Random images for a case's network, with its targets or without.
struct Rows {
  Rows(const Case& c, bool labelled) : pixels(few_rows * c.network.input.count()) {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(draw(1, 0, i, Draw::synth));
    batch.images = pixels.data();
    if (labelled) batch.targets = c.targets.data();
    batch.rows = batch.capacity = few_rows;
  }
  data::Batch one(std::size_t row) const {
    data::Batch alone = batch;
    alone.images += row * (pixels.size() / few_rows);
    alone.rows = alone.capacity = 1;
    return alone;
  }
  std::vector<std::uint8_t> pixels;
  data::Batch batch;
};

std::vector<float> run(Inference& inference, const data::Batch& batch) {
  inference.run(batch);
  std::vector<float> logits;
  for (std::size_t row = 0; row < batch.rows; ++row)
    for (const float logit : inference.logits(row)) logits.push_back(logit);
  return logits;
}

}  // namespace

TEST_CASE("a batch without targets gives the logits of one with targets, and counts nowhere",
          "[cpu][evaluation][program]") {
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  if (precision == Precision::bf16 && !has_bf16()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, few_rows, 5);
    const Compiled compiled(c, few_rows, cpu(), precision);
    const Rows known(c, true), unknown(c, false);
    Inference inference(*compiled.backend, c.network, compiled.program->spec(),
                        *compiled.parameters);
    const std::vector<float> want = run(inference, known.batch);
    CHECK(want.size() == few_rows * c.network.classes);
    CHECK(inference.take_metrics().rows == few_rows);
    CHECK(run(inference, unknown.batch) == want);
    const Metrics none = inference.take_metrics();
    CHECK((none.rows == 0 && none.loss == 0 && none.top1 == 0 && none.top5 == 0));
    CHECK(run(inference, known.batch) == want);
  }
}

TEST_CASE("training on a batch without targets is an error", "[cpu][program]") {
  const Case c(plain(), few_rows, 5);
  const Compiled compiled(c, few_rows, cpu(), Precision::fp32);
  CHECK_THROWS_AS(compiled.program->load(Rows(c, false).batch), Error);
  CHECK_NOTHROW(compiled.program->load(Rows(c, true).batch));
}

TEST_CASE("the loss is minus the logarithm of the label's probability, and top-1 what is predicted",
          "[cpu][evaluation]") {
  const Case c(bottlenecks(), few_rows, 5);
  const Compiled compiled(c, few_rows, cpu(), Precision::fp32);
  const Rows known(c, true);
  Inference inference(*compiled.backend, c.network, compiled.program->spec(), *compiled.parameters);
  inference.run(known.batch);
  double loss = 0;
  std::uint64_t right = 0;
  for (std::size_t row = 0; row < few_rows; ++row) {
    const auto label = static_cast<std::size_t>(c.targets[row].label_a);
    const std::vector<double> probabilities = inference.probabilities(row);
    double sum = 0, largest = 0;
    for (const double one : probabilities) {
      sum += one;
      largest = std::max(largest, one);
    }
    CHECK(sum == Approx(1));
    CHECK(probabilities[inference.predicted(row)] == largest);
    const data::Target& target = c.targets[row];
    const auto other =
        static_cast<std::size_t>(target.label_b < 0 ? target.label_a : target.label_b);
    loss -= double{target.mix} * std::log(probabilities[label]) +
            (1 - double{target.mix}) * std::log(probabilities[other]);
    right += inference.predicted(row, label) == label ? 1 : 0;
    CHECK((inference.predicted(row, label) == label) == (inference.predicted(row) == label));
  }
  const Metrics metrics = inference.take_metrics();
  CHECK(metrics.loss == Approx(loss).epsilon(1e-9));
  CHECK(metrics.top1 == right);
}

TEST_CASE("a row whose logits are not numbers is never predicted as its label",
          "[cpu][evaluation]") {
  const Case c(plain(), few_rows, 5);
  const Compiled compiled(c, few_rows, cpu(), Precision::fp32);
  const auto& slices = compiled.parameters->layout().slices;
  const std::size_t bad = GENERATE(0u, 2u);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    if (slices[s].tensor.role != nn::Role::linear_bias) continue;
    std::vector<float> bias = compiled.exported(Part::weights, s);
    bias[bad] = std::numeric_limits<float>::quiet_NaN();
    compiled.parameters->import_slice(Part::weights, s, bias);
  }
  Inference inference(*compiled.backend, c.network, compiled.program->spec(), *compiled.parameters);
  inference.run(Rows(c, false).batch);
  for (std::size_t row = 0; row < few_rows; ++row) {
    CHECK(std::isnan(inference.logits(row)[bad]));
    for (std::size_t label = 0; label < c.network.classes; ++label)
      CHECK(inference.predicted(row, label) != label);
  }
}

TEST_CASE("batches of several sizes take turns, and each row keeps its logits",
          "[cpu][evaluation]") {
  const Case c(bottlenecks(), few_rows, 5);
  const Compiled compiled(c, few_rows, cpu(), Precision::fp32);
  const Rows known(c, true);
  Inference inference(*compiled.backend, c.network, compiled.program->spec(), *compiled.parameters);
  const std::vector<float> all = run(inference, known.batch);
  std::vector<float> alone;
  for (std::size_t row = 0; row < few_rows; ++row) {
    data::Batch one = known.one(row);
    one.targets += row;
    for (const float logit : run(inference, one)) alone.push_back(logit);
  }
  CHECK(distance(alone, {all.begin(), all.end()}) <= 1e-6);
  CHECK(run(inference, known.batch) == all);
  CHECK(inference.take_metrics().rows == 3 * few_rows);
  CHECK(inference.take_metrics().rows == 0);
}
