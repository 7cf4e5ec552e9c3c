// Loss, metrics and the gradient of the logits, compared with double loops, and those of labels and
// values with the CPU's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/backend/logits.hpp"
#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

struct Rows {
  Rows(std::size_t count, int of_classes)
      : rows(count),
        classes(static_cast<std::size_t>(of_classes)),
        logits(some_values(rows * classes, 1)),
        bias(some_values(classes, 2)) {
    for (double& v : logits) v = std::round(v * 16) / 2;  // some of them equal
    for (double& v : bias) v = std::round(v * 2) / 2;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto label = [&](std::size_t k) {
        return static_cast<std::int32_t>((r * 7 + k) % classes);
      };
      targets.push_back({label(0), r % 3 ? label(1) : -1, r % 3 ? 0.7f : 1.f});
      if (r % 4 == 3) targets.back() = {};  // padding
    }
  }
  std::size_t rows, classes;
  std::vector<double> logits, bias;
  std::vector<data::Target> targets;
  std::vector<float> wanted = {};  ///< of labels and values
};

struct Wanted {
  DeviceMetrics metrics{};
  std::vector<double> dlogits;
};

Wanted wanted(const Rows& in, double smoothing, double scale) {
  Wanted want;
  want.dlogits.resize(in.logits.size());
  for (std::size_t r = 0; r < in.rows; ++r) {
    const data::Target& target = in.targets[r];
    if (target.label_a < 0) continue;
    std::vector<double> z(in.classes);
    for (std::size_t k = 0; k < in.classes; ++k) z[k] = in.logits[r * in.classes + k] + in.bias[k];
    double sum = 0;
    for (const double v : z) sum += std::exp(v);
    const auto a = static_cast<std::size_t>(target.label_a);
    const auto b = static_cast<std::size_t>(target.label_b < 0 ? target.label_a : target.label_b);
    std::size_t better = 0;
    for (std::size_t k = 0; k < in.classes; ++k) {
      double p = smoothing / static_cast<double>(in.classes);
      if (k == a) p += (1 - smoothing) * double{target.mix};
      if (k == b) p += (1 - smoothing) * (1 - double{target.mix});
      want.metrics.loss -= p * (z[k] - std::log(sum));
      want.dlogits[r * in.classes + k] = scale * (std::exp(z[k]) / sum - p);
      better += z[k] > z[a] || (z[k] == z[a] && k < a) ? 1 : 0;
    }
    ++want.metrics.rows;
    want.metrics.top1 += better < 1 ? 1 : 0;
    want.metrics.top5 += better < 5 ? 1 : 0;
  }
  return want;
}

constexpr DeviceMetrics before{2.5, 10, 4, 6, {1, 2, 3}};

Outputs run_loss(const Rows& in, const backend::LossSpec& spec, bool training,
                 const DeviceScalars& scalars, cudaStream_t stream) {
  Values logits(Storage::fp32, in.logits), bias(Storage::fp32, in.bias);
  Values dlogits(Storage::fp32, in.logits.size());
  std::vector<DeviceMetrics> row_metrics(in.rows, {NAN, 77, 77, 77, {NAN, NAN, NAN}});
  DeviceMetrics metrics = before;
  loss({.logits = logits.floats(),
        .bias = bias.floats(),
        .targets = in.targets.data(),
        .wanted = in.wanted.data(),
        .rows = in.rows,
        .classes = static_cast<int>(in.classes),
        .task = spec.task,
        .smoothing = spec.smoothing,
        .delta = spec.delta,
        .weights = spec.weights.empty() ? nullptr : spec.weights.data()},
       &scalars, row_metrics.data(), &metrics, training ? dlogits.floats() : nullptr, stream);
  return {{metrics.loss, static_cast<double>(metrics.rows), static_cast<double>(metrics.top1),
           static_cast<double>(metrics.top5)},
          dlogits.read(),
          logits.read(),
          {metrics.sums[0], metrics.sums[1], metrics.sums[2]}};
}

}  // namespace

TEST_CASE("loss, metrics and the logits' gradient, with smoothing, mixed labels and padding",
          "[kernel]") {
  DeviceScalars scalars;
  scalars.step.gradient_scale = 0.125f;
  scalars.loss_scale.scale = 1024;
  for (const int classes : {2, 10, 33, 1000})
    for (const std::size_t rows : {1u, 9u, 300u}) {
      if (classes == 1000 && rows == 300) continue;
      for (const float smoothing : {0.f, 0.1f}) {
        INFO(rows << " rows, " << classes << " classes, smoothing " << smoothing);
        const Rows in(rows, classes);
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          return run_loss(in, {.smoothing = smoothing}, true, scalars, stream);
        });
        const Wanted want = wanted(in, double{smoothing}, 128);
        CHECK(got[0][0] == Approx(before.loss + want.metrics.loss).epsilon(1e-9));
        CHECK(got[0][1] == static_cast<double>(before.rows + want.metrics.rows));
        CHECK(got[0][2] == static_cast<double>(before.top1 + want.metrics.top1));
        CHECK(got[0][3] == static_cast<double>(before.top5 + want.metrics.top5));
        check_near(got[1], want.dlogits, 1e-7, "dlogits");
        for (std::size_t i = 0; i < in.logits.size(); ++i)
          CHECK(got[2][i] == in.logits[i] + in.bias[i % in.classes]);
      }
    }
}

TEST_CASE("evaluation has no gradient of the logits, and a NaN never counts as right", "[kernel]") {
  const DeviceScalars scalars;
  Rows in(9, 10);
  const Outputs right =
      in_every_order([&](cudaStream_t stream) { return run_loss(in, {}, false, scalars, stream); });
  CHECK(right[0][0] == Approx(before.loss + wanted(in, 0, 1).metrics.loss).epsilon(1e-9));
  CHECK(std::all_of(right[1].begin(), right[1].end(), [](double v) { return std::isnan(v); }));
  std::fill(in.logits.begin(), in.logits.end(), NAN);
  const Outputs spoiled =
      in_every_order([&](cudaStream_t stream) { return run_loss(in, {}, true, scalars, stream); });
  CHECK(std::isnan(spoiled[0][0]));
  CHECK(spoiled[0][2] == static_cast<double>(before.top1));
  for (std::size_t i = 0; i < 30; ++i) CHECK(std::isnan(spoiled[1][i]));
}

TEST_CASE(
    "losses of labels, values and weighted classes are the CPU's, unknown ones and padding "
    "included",
    "[kernel]") {
  using data::Task;
  DeviceScalars scalars;
  scalars.step.gradient_scale = 0.125f;
  scalars.loss_scale.scale = 1024;
  struct Kind {
    Task task;
    float smoothing = 0, delta = 0;
    bool weighted = false;
  };
  for (const Kind& kind :
       {Kind{Task::labels}, Kind{Task::labels, 0.1f}, Kind{Task::labels, 0.1f, 0, true},
        Kind{Task::classes, 0, 0, true}, Kind{Task::classes, 0.1f, 0, true}, Kind{Task::values},
        Kind{Task::values, 0, 1}})
    for (const int outputs : {1, 19, 33, 1000})
      for (const std::size_t rows : {1u, 9u, 300u}) {
        if (outputs == 1000 && rows == 300) continue;
        backend::LossSpec spec{.task = kind.task, .smoothing = kind.smoothing, .delta = kind.delta};
        for (int k = 0; kind.weighted && k < outputs; ++k)
          spec.weights.push_back(static_cast<float>(k % 4) * 0.7f + 0.1f);
        INFO(choice_name(spec.task)
             << ": " << rows << " rows of " << outputs << ", smoothing " << spec.smoothing
             << ", delta " << spec.delta << ", " << spec.weights.size() << " weights");
        Rows in(rows, outputs);
        for (std::size_t i = 0; i < in.logits.size(); ++i)
          in.wanted.push_back(i % 7 == 2                  ? NAN
                              : spec.task == Task::values ? static_cast<float>(in.logits[i / 2])
                              : i % 5 == 3                ? 0.25f
                                                          : static_cast<float>(i % 3 == 1));
        backend::Metrics want;
        std::vector<float> dlogits(in.logits.size());
        for (std::size_t r = 0; r < rows; ++r) {
          std::vector<float> z(in.classes);
          for (std::size_t k = 0; k < in.classes; ++k)
            z[k] = static_cast<float>(in.logits[r * in.classes + k] + in.bias[k]);
          const std::size_t at = r * in.classes;
          backend::row_loss(spec, z, in.targets[r], &in.wanted[at], 128, want, &dlogits[at]);
        }
        const Outputs got = in_every_order(
            [&](cudaStream_t stream) { return run_loss(in, spec, true, scalars, stream); });
        CHECK(got[0][0] == Approx(before.loss + want.loss).epsilon(1e-12));
        CHECK(got[0][1] == static_cast<double>(before.rows + want.rows));
        CHECK(got[0][2] == static_cast<double>(before.top1 + want.top1));
        for (std::size_t i = 0; i < 3; ++i)
          CHECK(got[3][i] == Approx(before.sums[i] + want.sums[i]).epsilon(1e-12));
        check_near(got[1], std::vector<double>(dlogits.begin(), dlogits.end()), 1e-7, "dlogits");
      }
}

TEST_CASE("an output that is not a number spoils the loss only where it should be known",
          "[kernel]") {
  const DeviceScalars scalars;
  for (const data::Task task : {data::Task::labels, data::Task::values}) {
    Rows in(1, 3);
    in.logits = {0.5, NAN, -2};
    in.wanted = {1, NAN, 0};
    const auto run = [&] {
      return in_every_order(
          [&](cudaStream_t stream) { return run_loss(in, {.task = task}, true, scalars, stream); });
    };
    const Outputs spared = run();
    CHECK_FALSE(std::isnan(spared[0][0]));
    CHECK(spared[1][1] == 0);
    in.wanted[1] = 1;
    const Outputs spoiled = run();
    CHECK(std::isnan(spoiled[0][0]));
    CHECK(std::isnan(spoiled[1][1]));
  }
}

TEST_CASE("the bias gradient is the sum over the rows", "[kernel]") {
  for (const std::size_t rows : {1u, 31u, 100u})
    for (const int classes : {3, 32, 70})
      for (const bool accumulate : {false, true}) {
        INFO(rows << " rows, " << classes << " classes" << (accumulate ? ", added" : ""));
        const auto columns = static_cast<std::size_t>(classes);
        const std::vector<double> d = rounded(Storage::fp32, some_values(rows * columns, 3));
        const std::vector<double> old = rounded(Storage::fp32, some_values(columns, 4));
        Values dlogits(Storage::fp32, d);
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          Values dbias(Storage::fp32, old);
          bias_gradient(dlogits.floats(), rows, classes, accumulate, dbias.floats(), stream);
          return Outputs{dbias.read()};
        });
        std::vector<double> want = accumulate ? old : std::vector<double>(columns);
        for (std::size_t i = 0; i < d.size(); ++i) want[i % columns] += d[i];
        check_near(got[0], want, 1e-7, "dbias");
      }
}
