#include "lockstep/study/fit/fit.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/observe/binding_record.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/study/fit/summaries.hpp"
#include "study/fit/regression.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Contains;

namespace {

Samples published(const std::string& match) {
  return read_table("data/published/mlperf-resnet50.csv", {.match = match});
}

/// The largest error of predicting the results of more ranks from those of up to `ranks`.
double error_beyond(std::size_t ranks, const std::string& match) {
  std::vector<Sample> small, large;
  for (const Sample& sample : published(match).good)
    (sample.ranks <= ranks ? small : large).push_back(sample);
  const Fit fit = fit_law(points(small), {.fewest = 3, .replicates = 20});
  REQUIRE(large.size() >= 2);
  double worst = 0;
  for (const Sample& sample : large)
    worst = std::max(
        worst, std::abs(fit.law.step_ms(sample.rows(), double(sample.ranks)) / sample.step_ms - 1));
  return worst;
}

/// Three repetitions for each of these ranks and rows, with lognormal noise.
std::vector<Point> measured(const Law& truth, std::uint64_t seed, double noise) {
  std::vector<Sample> samples;
  const Draws draws(seed, 7);
  for (const double rows : {16, 48, 128})
    for (const double ranks : {1, 2, 4, 8, 16, 32})
      for (int repetition = 0; repetition < 3; ++repetition) {
        Sample sample;
        sample.ranks = std::size_t(ranks);
        sample.batch = std::size_t(rows * ranks);
        sample.step_ms =
            truth.step_ms(rows, ranks) * std::exp(noise * draws.normal(samples.size()));
        samples.push_back(sample);
      }
  return points(samples);
}

const Law known{.c_ms = 0.3, .a_ms = 5, .alpha_ms = 0.5, .wire_ms = 4, .buckets = 4};

std::string outliers(const Fit& fit) {
  std::string names;
  for (const Judged& one : fit.points)
    if (one.outlier) names += one.point.names.front() + "\n";
  return names;
}

}  // namespace

TEST_CASE("results of up to 64 A100 predict those of 1024 and 4320 within 6 %", "[study]") {
  CHECK(error_beyond(64, R"(^(1|2)\.[01] NVIDIA/dgxa100_)") <= 0.06);
}

TEST_CASE("results of few H100, Gaudi and A100 predict those of many within 10 %", "[study]") {
  CHECK(error_beyond(64, R"(^3\.. (NVIDIA.*/(dgxh100|eos|coreweave)|Dell/2xXE9680x8H100))") <= 0.1);
  CHECK(error_beyond(64, "^1.1 Intel-HabanaLabs/HLS-1H") <= 0.1);
  CHECK(error_beyond(32, R"(^2.0 Dell/(\d+x)?XE8545x4A100-SXM-40GB)") <= 0.1);
}

TEST_CASE("a point that contradicts all others is named and not fitted through", "[study]") {
  const Fit fit = fit_law(points(published("^2.1 HPE/HPE-ProLiant-XL675d").good), {});
  CHECK_THAT(outliers(fit), Contains("_4N_mxnet") && !Contains("_8N_"));
  for (const Judged& one : fit.points) CHECK((std::abs(one.deviation()) > 0.02) == one.outlier);
  CHECK(outliers(fit_law(points(published("^0.6 Google/tpu").good), {})).empty());
  CHECK(outliers(fit_law(points(published("^2.0 Dell/.*XE8545x4A100-SXM-40GB").good), {})).empty());
}

TEST_CASE("a rate that contradicts its time to train is rejected", "[study]") {
  const Samples all = published("");
  REQUIRE(all.rejected.size() == 1);
  CHECK_THAT(all.rejected[0].name, Contains("csv:176 ") && Contains("n527"));
  CHECK_THAT(all.rejected[0].reason,
             Contains("42606525 images/s contradict") && Contains("5738561"));
  CHECK(all.good.size() > 250);
}

TEST_CASE("from up to 32 ranks the law finds a step's time on 256", "[study]") {
  const double truth = known.step_ms(32, 256);
  int covered = 0;
  std::vector<double> errors;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const FitSpec spec{.replicates = 100, .seed = seed, .buckets = 4, .jitter = 0.0};
    const Interval step = predict_step(fit_law(measured(known, seed, 0.02), spec), 32, 256);
    errors.push_back(std::abs(step.middle / truth - 1));
    covered += step.low <= truth && truth <= step.high;
  }
  CHECK(covered >= 85);
  CHECK(interval(errors, 0.9).middle <= 0.05);
}

TEST_CASE("the law finds the numbers that exact measurements were made with", "[study]") {
  const Fit fit = fit_law(measured(known, 1, 0), {.replicates = 10, .buckets = 4, .jitter = 0.0});
  CHECK(fit.law.c_ms == Approx(known.c_ms).epsilon(1e-4));
  CHECK(fit.law.a_ms == Approx(known.a_ms).epsilon(1e-3));
  CHECK(fit.law.alpha_ms == Approx(known.alpha_ms).epsilon(1e-3));
  CHECK(fit.law.wire_ms == Approx(known.wire_ms).epsilon(1e-3));
  CHECK((fit.has_alpha && fit.has_wire));
  const Law silent{.c_ms = 0.3, .a_ms = 5};
  const Fit simple = fit_law(measured(silent, 1, 0.02), {.replicates = 10, .jitter = 0.0});
  CHECK(simple.law.step_ms(32, 256) == Approx(silent.step_ms(32, 256)).epsilon(0.05));
}

TEST_CASE("communication is exposed only where backward does not hide it", "[study]") {
  Law law{.c_ms = 1, .a_ms = 0, .alpha_ms = 0, .wire_ms = 8, .buckets = 4, .backward = 0.5};
  // On 2 ranks the wire takes 8 ms, a bucket 2. Backward of 100 rows takes 50 ms: one bucket shows.
  CHECK(law.split(100, 2).exposed == Approx(2));
  // Of 8 rows it takes 4 ms: 3 of them pass after the first bucket is ready.
  CHECK(law.split(8, 2).exposed == Approx(8 - 3));
  CHECK(law.split(8, 1).exposed == 0);
}

TEST_CASE("the slowest of many ranks is the expected largest of normal draws", "[study]") {
  CHECK(expected_largest(1) == 0);
  CHECK(expected_largest(2) == Approx(1 / std::sqrt(3.14159265)).epsilon(0.05));
  CHECK(expected_largest(10) == Approx(1.53875).epsilon(0.01));
  CHECK(expected_largest(1000) == Approx(3.24144).epsilon(0.01));
  CHECK(expected_largest(10'000) == Approx(3.85).epsilon(0.01));
}

TEST_CASE("the largest points are predicted from the others", "[study]") {
  const FitSpec spec{.replicates = 50};
  const Fit fit = fit_law(points(published(R"(^(1|2)\.[01] NVIDIA/dgxa100_)").good), spec);
  const std::vector<LeftOut> left_out = leave_out_largest(fit, spec);
  REQUIRE(left_out.size() == 1);
  CHECK(left_out[0].point.ranks == 4320);
  CHECK(std::abs(left_out[0].error()) < 0.06);
  CHECK(left_out[0].step_ms.low < left_out[0].point.step_ms);
  CHECK(left_out[0].point.step_ms < left_out[0].step_ms.high);
  CHECK_THAT(caution(fit, 16, 40000), Contains("9 times the most"));
  CHECK_THAT(caution(fit, 5, 4320), Contains("5 rows a rank are far"));
  CHECK(caution(fit, 100, 1000).empty());
}

TEST_CASE("a run that was resumed as other work is no measurement, and says what differs",
          "[study]") {
  const lockstep::test::Folder folder("samples");
  observe::StartRecord start;
  start.ranks = 2;
  start.batch = 8;
  start.cores = 4;
  start.hosts = {"n1"};
  start.precision = "fp32";
  start.parameters = 1000;
  const auto measured = [&](const observe::StartRecord& later) {
    std::string lines;
    for (const observe::StartRecord& one : {start, later}) {
      lines += to_json(observe::Record(one)) + "\n";
      for (std::uint64_t step = 1; step <= 10; ++step) {
        observe::StepRecord record;
        record.times.forward_ms = step == 1 ? 1000 : 10;  // it compiles, too
        lines += to_json(observe::Record(record)) + "\n";
      }
    }
    lockstep::test::write_file(folder.path / "metrics.jsonl", lines);
    lockstep::test::write_file(folder.path / "config.toml", "");
    observe::RankBinding rank;
    rank.world = 2;
    std::vector<observe::RankBinding> ranks(2, rank);
    ranks[1].rank = 1;
    lockstep::test::write_file(folder.path / "binding.json", observe::to_json(ranks));
    return read_run(folder.path);
  };
  CHECK(measured(start).step_ms == 10);
  CHECK(measured(start).mean_exposed_ms == 0);
  CHECK(measured(start).gradient_numbers == 1000);  // as older records have it
  start.learning = 30;
  CHECK(measured(start).gradient_numbers == 30);
  CHECK(measured(start).steps == 18);  // without the first tenth, and the first of the second start
  const auto refuses = [&](auto change, const std::string& what) {
    observe::StartRecord later = start;
    change(later);
    CHECK_THROWS_WITH(measured(later), Contains(what) && Contains("not one measurement"));
  };
  refuses([](auto& later) { later.ranks = 1; }, "began with ranks = 2 and was resumed with 1");
  refuses([](auto& later) { later.batch = 16; }, "began with batch = 8 and was resumed with 16");
  refuses([](auto& later) { later.hosts = {"n1", "n2"}; }, "nodes = 1");
  refuses([](auto& later) { later.precision = "bf16"; }, "precision = fp32");
  refuses([](auto& later) { later.cores = 8; }, "cores = 4");
}

TEST_CASE("few points, or points of one size, are no fit", "[study]") {
  const std::vector<Point> gaudi =
      points(published("^1.1 Intel-HabanaLabs/HLS-1H-N(2|4|8|16)$").good);
  REQUIRE(gaudi.size() == 4);
  CHECK_THROWS_WITH(fit_law(gaudi, {}), Contains("too few: 4"));
  CHECK_NOTHROW(fit_law(gaudi, {.fewest = 4, .replicates = 10}));
  std::vector<Point> same = gaudi;
  std::erase_if(same, [](const Point& point) { return point.rows() != 128; });
  CHECK_THROWS_WITH(fit_law(same, {.fewest = 3}), Contains("128 rows a rank"));
}

// The example in the README of R's package usl 3.0: a SPARCcenter 2000 in the SPEC SDM91 benchmark.
TEST_CASE("the universal scalability law gives the coefficients that R's usl prints", "[study]") {
  const std::vector<Load> specsdm91 = {{1, 64.9},     {18, 995.9},   {36, 1652.4}, {72, 1853.2},
                                       {108, 1828.9}, {144, 1775.0}, {216, 1702.2}};
  const auto usl = universal_scalability(specsdm91, {.replicates = 100});
  REQUIRE(usl);
  CHECK(usl->alpha.middle == Approx(0.0277285).epsilon(5e-4));
  CHECK(usl->beta.middle == Approx(0.0001044).epsilon(5e-4));
  CHECK(usl->gamma.middle == Approx(89.9952330).epsilon(5e-4));
  REQUIRE(usl->peak());
  CHECK(*usl->peak() == Approx(96.5).epsilon(0.01));
  CHECK((usl->alpha.low < usl->alpha.middle && usl->alpha.middle < usl->alpha.high));
}

TEST_CASE("Amdahl's and Gustafson's fractions come back from their laws", "[study]") {
  std::vector<Load> strong, weak;
  for (const double n : {1, 2, 4, 8, 16}) {
    strong.push_back({n, 100 / (0.05 + 0.95 / n)});
    weak.push_back({n, 100 * (n - 0.1 * (n - 1))});
  }
  CHECK(amdahl(strong, {.replicates = 10})->fraction.middle == Approx(0.05));
  CHECK(gustafson(weak, {.replicates = 10})->fraction.middle == Approx(0.1));
  CHECK_FALSE(amdahl({strong[0], strong[1]}, {}));
  CHECK_FALSE(universal_scalability({strong[0], strong[1], strong[2]}, {}));
}

TEST_CASE("series are never mixed: strong ones share the batch, weak ones the rows", "[study]") {
  std::vector<Sample> samples;
  for (const auto& [ranks, batch] : {std::pair<std::size_t, std::size_t>{1, 64},
                                     {2, 64},
                                     {4, 64},
                                     {2, 128},
                                     {4, 256},
                                     {1, 16}}) {
    Sample sample;
    sample.ranks = ranks;
    sample.batch = batch;
    sample.step_ms = 1;
    samples.push_back(sample);
  }
  const std::vector<Series> series = series_of(points(samples));
  REQUIRE(series.size() == 2);
  for (const Series& one : series) CHECK(one.points.size() == 3);
  CHECK_THAT(series[0].title() + series[1].title(),
             Contains("strong scaling, batch 64") && Contains("weak scaling, 64 rows a rank"));
}
