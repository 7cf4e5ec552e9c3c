// Networks that answer as one: ensembles and cascades, whose rows are those of their members.
#include "lockstep/infer/combined.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/infer/ladder.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::infer;
using namespace lockstep::test;

namespace {

constexpr std::size_t row_count = 7, batch_rows = 8;
using Logits = std::vector<std::vector<float>>;  // by row

std::unique_ptr<Backend> two_threads() {
  return make_cpu_backend({std::vector<std::vector<int>>(2)});
}

Logits all_rows(Classifier& model, const data::Batch& batch) {
  model.run(batch);
  Logits rows;
  for (std::size_t row = 0; row < batch.rows; ++row)
    rows.emplace_back(model.logits(row).begin(), model.logits(row).end());
  return rows;
}

/// Three networks of one input with other weights, and rows for them.
struct Three {
  Three() : pixels(batch_rows * cases[0].network.input.count()) {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(draw(3, 0, i, Draw::synth));
    for (std::size_t row = 0; row < row_count; ++row)
      targets.push_back({static_cast<std::int32_t>(row % cases[0].network.classes)});
    targets.resize(batch_rows);
    for (std::size_t k = 0; k < 3; ++k) alone.push_back(all_rows(*ladder(k), batch()));
  }
  data::Batch batch() const {
    return {.images = pixels.data(),
            .targets = targets.data(),
            .rows = row_count,
            .capacity = batch_rows};
  }
  std::unique_ptr<Ladder> ladder(std::size_t k) const {
    auto made = std::make_unique<Ladder>(*on[k].backend, cases[k].network, on[k].program->spec(),
                                         *on[k].parameters);
    while (!made->prepare()) {
    }
    return made;
  }
  /// These networks, one after the other in `stages`.
  Combined combined(const std::vector<std::size_t>& which, const std::vector<Stage>& stages) const {
    std::vector<Member> members;
    for (const std::size_t k : which) members.push_back({std::to_string(k), ladder(k)});
    return {std::move(members),
            {.stages = stages,
             .row_bytes = cases[0].network.input.count(),
             .outputs = cases[0].network.classes,
             .batch = batch_rows},
            on[0].backend->device()};
  }
  /// Network 0 chooses: `first` answers rows of these classes, by network 1, network 2 the others.
  std::unique_ptr<Classifier> gated(const std::set<std::size_t>& first,
                                    const std::vector<std::size_t>& outputs_of_second) const {
    const std::size_t classes = cases[0].network.classes;
    std::vector<std::size_t> same(classes);
    std::iota(same.begin(), same.end(), std::size_t{0});
    Arrangement how{.arms = {{1, same}, {1, outputs_of_second}}};
    for (std::size_t k = 0; k < classes; ++k) how.arm_of_class.push_back(first.contains(k) ? 0 : 1);
    std::vector<Member> members;
    for (const std::size_t k : {0, 1, 2}) members.push_back({std::to_string(k), ladder(k)});
    const std::size_t outputs = 1 + std::ranges::max(outputs_of_second);
    return arrange(std::move(members), how,
                   {.stages = {},
                    .row_bytes = cases[0].network.input.count(),
                    .outputs = std::max(classes, outputs),
                    .batch = batch_rows},
                   on[0].backend->device());
  }
  /// The confidence of network 0, by row.
  std::vector<double> confidences() const {
    std::vector<double> all;
    for (const auto& row : alone[0]) all.push_back(top_probability(row));
    return all;
  }

  const Case cases[3] = {
      {plain(), batch_rows, 5}, {plain(), batch_rows, 6}, {plain(), batch_rows, 7}};
  const Compiled on[3] = {{cases[0], batch_rows, two_threads(), Precision::fp32},
                          {cases[1], batch_rows, two_threads(), Precision::fp32},
                          {cases[2], batch_rows, two_threads(), Precision::fp32}};
  std::vector<std::uint8_t> pixels;
  std::vector<data::Target> targets;
  std::vector<Logits> alone;
};

double share(std::span<const float> logits, std::size_t k) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - double{logits[k]});
  return 1 / sum;
}

}  // namespace

TEST_CASE("an ensemble of one network with itself has that network's bits", "[members][cpu]") {
  const Three three;
  for (const std::size_t copies : {2u, 3u, 5u}) {
    Combined model = three.combined(std::vector<std::size_t>(copies, 0), {{.members = copies}});
    CHECK(all_rows(model, three.batch()) == three.alone[0]);
  }
}

TEST_CASE("the softmax of an ensemble's logits is the mean of its members' probabilities",
          "[members][cpu]") {
  const Three three;
  Combined model = three.combined({0, 1, 2}, {{.members = 3}});
  const Logits rows = all_rows(model, three.batch());
  for (std::size_t row = 0; row < row_count; ++row)
    for (std::size_t k = 0; k < rows[row].size(); ++k) {
      double mean = 0;
      for (const Logits& alone : three.alone) mean += share(alone[row], k) / 3;
      CHECK(share(rows[row], k) == Approx(mean).epsilon(1e-5));
    }
}

TEST_CASE("a mean of probabilities neither overflows nor hides what is not a number", "[members]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> sure = {2000, 0, -2000}, other = {-2000, 0, 2000}, bad = {0, nan, 1};
  const std::vector<float> mean = mean_logits({sure, other});
  CHECK(std::ranges::all_of(mean, [](float logit) { return std::isfinite(logit); }));
  CHECK(share(mean, 0) == Approx(0.5));
  CHECK(share(mean, 2) == Approx(0.5));
  CHECK(mean_logits({sure, sure, sure}) == sure);
  for (const auto& members : {std::vector<std::span<const float>>{sure, bad}, {bad, sure}})
    for (const float logit : mean_logits(members)) CHECK(std::isnan(logit));
}

TEST_CASE("a label's sigmoid is the mean of the members' probabilities of it, and of nothing else",
          "[members]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> one = {2, -3, 2000, 0.5f, nan}, two = {-1, -5, -2000, 0.5f, 1},
                           three = {0, 40, 2000, 0.5f, 1};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> mean = mean_label_logits({one, two, three});
  for (const std::size_t k : {0u, 1u, 2u})
    CHECK(sigmoid(mean[k]) ==
          Approx((sigmoid(one[k]) + sigmoid(two[k]) + sigmoid(three[k])) / 3).epsilon(1e-6));
  CHECK(mean[3] == 0.5f);
  CHECK(std::isnan(mean[4]));
  const std::vector<float> sure = {2000, -2000, 0.1f, 1e-30f};
  CHECK(mean_label_logits({sure, sure, sure}) == sure);
}

TEST_CASE("values of members of other scales have their mean, in the first one's scale",
          "[members]") {
  const ValueScale hundreds{{101325, 0}, {500, 0.25f}}, tens{{1000, 1}, {10, 2}};
  const std::vector<float> one = {0.1f, -2}, two = {3, 0.5f};
  const std::vector<float> mean = mean_values({one, two}, {&hundreds, &tens});
  CHECK(mean[0] * 500. + 101325 == Approx((0.1f * 500. + 101325 + 1030) / 2).epsilon(1e-7));
  CHECK(mean[1] * 0.25 == Approx((-2 * 0.25 + 2) / 2).epsilon(1e-7));
  CHECK(mean_values({one, one, one}, {&hundreds, &hundreds, &hundreds}) == one);
  CHECK(mean_values({two, two}, {&tens, &tens}) == two);
}

TEST_CASE("an ensemble counts its rows by the task, unknown outputs nowhere", "[members][cpu]") {
  const Three three;
  const std::size_t outputs = three.cases[0].network.classes;
  std::vector<float> wanted(batch_rows * outputs);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = i % 3 == 0 ? 1 : 0;
  wanted[4] = std::numeric_limits<float>::quiet_NaN();
  data::Batch batch = three.batch();
  std::vector<data::Target> targets(batch_rows);
  for (std::size_t row = 0; row < row_count; ++row) targets[row].label_a = 0;
  batch.targets = targets.data();
  batch.wanted = wanted.data();
  for (const LossSpec& loss : {LossSpec{.task = data::Task::labels},
                               LossSpec{.task = data::Task::values, .delta = 0.5f}}) {
    const ValueScale scale{std::vector<float>(outputs, 3), std::vector<float>(outputs, 2)};
    std::vector<Member> members;
    for (const std::size_t k : {0, 1})
      members.push_back({std::to_string(k), three.ladder(k), scale});
    Combined model(std::move(members),
                   {.stages = {{.members = 2}},
                    .row_bytes = three.cases[0].network.input.count(),
                    .outputs = outputs,
                    .batch = batch_rows,
                    .loss = loss},
                   three.on[0].backend->device());
    const Logits rows = all_rows(model, batch);
    Metrics own;
    for (std::size_t row = 0; row < row_count; ++row)
      row_loss(loss, rows[row], targets[row], wanted.data() + row * outputs, 1, own, nullptr);
    const Metrics told = model.take_metrics();
    CHECK((told.rows == row_count && told.loss == own.loss && told.sums == own.sums));
    CHECK(std::isfinite(told.loss));
  }
}

TEST_CASE("each row of a cascade has the bits of the network that answers it, in any company",
          "[members][cpu]") {
  const Three three;
  std::vector<double> thresholds = three.confidences();
  thresholds.insert(thresholds.end(), {0, 0.5, 1, 2});
  std::size_t of_both = 0;
  for (const double above : thresholds) {
    Combined model = three.combined({0, 1}, {{.above = above}, {}});
    const Logits rows = all_rows(model, three.batch());
    std::uint64_t kept = 0;
    for (std::size_t row = 0; row < row_count; ++row) {
      const bool keeps = three.confidences()[row] > above;
      kept += keeps ? 1 : 0;
      CHECK(rows[row] == three.alone[keeps ? 0 : 1][row]);
      CHECK(std::ranges::equal(model.first_answer(row), three.alone[0][row]));
    }
    of_both += kept > 0 && kept < row_count ? 1 : 0;
    const auto figures = model.take_figures();
    REQUIRE(figures.size() == 2);
    CHECK((figures[0].name == "0" && figures[0].rows == row_count && figures[0].runs == 1));
    CHECK((figures[1].name == "1" && figures[1].rows == row_count - kept));
    CHECK(figures[0].seconds > 0);
    CHECK(model.take_figures()[0].rows == 0);
  }
  CHECK(of_both >= row_count - 1);
}

TEST_CASE("by 0 the first answers all rows of a cascade, and above 1 none", "[members][cpu]") {
  const Three three;
  Combined first = three.combined({0, 1}, {{.above = 0}, {}});
  CHECK(all_rows(first, three.batch()) == three.alone[0]);
  Combined last = three.combined({0, 1}, {{.above = 1.5}, {}});
  CHECK(all_rows(last, three.batch()) == three.alone[1]);
}

TEST_CASE("a cascade may end with a cascade or an ensemble", "[members][cpu]") {
  const Three three;
  Combined nested = three.combined({0, 1, 2}, {{.above = 2}, {.above = 2}, {}});
  CHECK(all_rows(nested, three.batch()) == three.alone[2]);
  Combined pair = three.combined({1, 2}, {{.members = 2}});
  Combined ends = three.combined({0, 1, 2}, {{.above = 2}, {.members = 2}});
  CHECK(all_rows(ends, three.batch()) == all_rows(pair, three.batch()));
}

TEST_CASE("each row of a chain has the bits of the network that its gate's class chooses",
          "[members][cpu]") {
  const Three three;
  const std::size_t classes = three.cases[0].network.classes;
  std::vector<std::size_t> same(classes), said(classes, 0);
  std::iota(same.begin(), same.end(), std::size_t{0});
  for (const auto& row : three.alone[0]) ++said[predicted_class(row)];
  std::size_t of_both = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    const auto model = three.gated({k}, same);
    const Logits rows = all_rows(*model, three.batch());
    for (std::size_t row = 0; row < row_count; ++row)
      CHECK(rows[row] == three.alone[predicted_class(three.alone[0][row]) == k ? 1 : 2][row]);
    of_both += said[k] > 0 && said[k] < row_count ? 1 : 0;
    const auto figures = model->take_figures();
    REQUIRE(figures.size() == 3);
    CHECK((figures[0].name == "0" && figures[0].rows == row_count));
    CHECK((figures[1].name == "1" && figures[1].rows == said[k]));
    CHECK((figures[2].name == "2" && figures[2].rows == row_count - said[k]));
    CHECK(model->take_metrics().rows == row_count);
  }
  CHECK(of_both > 0);
}

TEST_CASE("in a chain, a class that the chosen network does not have is the least likely one",
          "[members][cpu]") {
  const Three three;
  const std::size_t classes = three.cases[0].network.classes;
  std::vector<std::size_t> others(classes);  // after those of the first network
  std::iota(others.begin(), others.end(), classes);
  const auto model = three.gated({}, others);
  const Logits rows = all_rows(*model, three.batch());
  for (std::size_t row = 0; row < row_count; ++row) {
    REQUIRE(rows[row].size() == 2 * classes);
    const std::vector<float>& own = three.alone[2][row];
    CHECK(std::equal(own.begin(), own.end(), rows[row].begin() + std::ptrdiff_t(classes)));
    for (std::size_t k = 0; k < classes; ++k)
      CHECK(rows[row][k] == *std::ranges::min_element(own) - Gated::absent);
    CHECK(model->probabilities(row)[0] < 1e-20);
  }
}

TEST_CASE("a model of several networks counts what a network with its logits counts",
          "[members][cpu]") {
  const Three three;
  Combined twice = three.combined({0, 0}, {{.members = 2}});
  Inference once(*three.on[0].backend, three.cases[0].network, three.on[0].program->spec(),
                 *three.on[0].parameters);
  const auto ladder = three.ladder(0);
  twice.run(three.batch());
  once.run(three.batch());
  ladder->run(three.batch());
  const Metrics want = once.take_metrics();
  for (Classifier* model :
       {static_cast<Classifier*>(&twice), static_cast<Classifier*>(ladder.get())}) {
    const Metrics got = model->take_metrics();
    CHECK(got.loss == Approx(want.loss).epsilon(1e-6));
    CHECK((got.rows == row_count && got.top1 == want.top1 && got.top5 == want.top5));
    CHECK(model->take_metrics().rows == 0);
  }
}
