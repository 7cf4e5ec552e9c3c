#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/study/report/study_report.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;

namespace {

/// All-reduces between that many ranks that take this long; 4 MB of gradients in 4 buckets.
constexpr double gradient_bytes = 4e6;
CommFigures figures(int ranks, double alpha_s, double bytes_per_s) {
  std::vector<CommPoint> points;
  for (double bytes = 1 << 14; bytes < 1 << 23; bytes *= 2)
    points.push_back({bytes, alpha_s + bytes / bytes_per_s});
  CommFigures all;
  all.ranks = all.nodes = ranks;
  all.verbs["all-reduce"] = figures_of(points);
  return all;
}

Sample a_sample(std::size_t ranks, std::size_t rows, double step_ms) {
  Sample sample;
  sample.name = "run";
  sample.ranks = ranks;
  sample.batch = rows * ranks;
  sample.step_ms = step_ms;
  sample.gradient_numbers = 1000000;
  sample.buckets = 4;
  return sample;
}

}  // namespace

TEST_CASE("the law's latency and wire are those of measured sums", "[study]") {
  const auto one = measured_sums({figures(4, 1e-3, 1e8)}, gradient_bytes, 4);
  CHECK(one.alpha_ms == Approx(0.5));
  CHECK(one.wire_ms == Approx(1e3 * 4e6 / 1e8 * 4 / 6));
  // A bucket of the law takes what it was measured to take.
  const Law law{.alpha_ms = one.alpha_ms, .wire_ms = one.wire_ms, .buckets = 4};
  CHECK(law.split(1, 4).exposed == Approx(4 * (1 + 1e3 * 1e6 / 1e8)));
  const auto mean =
      measured_sums({figures(4, 1e-3, 1e8), figures(16, 4e-3, 1e8)}, gradient_bytes, 4);
  CHECK(mean.alpha_ms == Approx((0.5 + 1) / 2));
  CHECK_THROWS_WITH(measured_sums({figures(1, 1e-3, 1e8)}, gradient_bytes, 4),
                    Contains("a file of 1 rank has"));
  CommFigures silent;
  silent.ranks = 2;
  CHECK_THROWS_WITH(measured_sums({silent}, gradient_bytes, 4), Contains("no all-reduces"));
}

TEST_CASE("with measured sums exposed communication is computed, and only c and a are fitted",
          "[study]") {
  const CommFigures sums = figures(4, 1e-3, 1e8);
  const auto held = measured_sums({sums}, gradient_bytes, 4);
  const Law truth{
      .c_ms = 0.5, .a_ms = 7, .alpha_ms = held.alpha_ms, .wire_ms = held.wire_ms, .buckets = 4};
  Samples samples;
  for (const std::size_t rows : {8, 32, 128})
    for (const std::size_t ranks : {1, 4, 16})
      samples.good.push_back(a_sample(ranks, rows, truth.step_ms(double(rows), double(ranks))));
  AnalysisSpec spec;
  spec.fit = {.replicates = 20, .buckets = 0, .jitter = 0.0};
  spec.sums = {sums};
  const Analysis found = analyse(samples, spec);
  REQUIRE(found.fit);
  CHECK(found.fit->law.measured_sums);
  CHECK_FALSE((found.fit->has_alpha || found.fit->has_wire));
  CHECK(found.fit->law.buckets == 4);
  CHECK(found.fit->law.c_ms == Approx(0.5).epsilon(1e-4));
  CHECK(found.fit->law.a_ms == Approx(7).epsilon(1e-3));
  CHECK(found.fit->law.wire_ms == held.wire_ms);
  CHECK_THAT(fit_text(found), Contains("computed from what bench comm measured, for 4 buckets"));

  for (Sample& sample : samples.good) sample.gradient_numbers = 0;
  CHECK_THROWS_WITH(analyse(samples, spec), Contains("no measurement says how many gradients"));
}

TEST_CASE("measurements of different machines, precisions or micro-batches are not one fit",
          "[study]") {
  const auto refused = [](auto change, const std::string& why) {
    std::vector<Sample> samples{a_sample(1, 8, 5), a_sample(2, 8, 6)};
    samples[0].network = samples[0].precision = samples[0].machine = "x";
    samples[1] = samples[0];
    samples[1].name = "other";
    CHECK_NOTHROW(require_alike(samples));
    change(samples[1]);
    CHECK_THROWS_AS(require_alike(samples), InputError);
    CHECK_THROWS_WITH(require_alike(samples), Contains("run has") && Contains(why));
  };
  refused([](Sample& other) { other.network = "y"; }, "other has 'y': one fit needs one network");
  refused([](Sample& other) { other.precision = "y"; }, "one fit needs one precision");
  refused([](Sample& other) { other.machine = "y"; }, "one fit needs one machine");
  refused([](Sample& other) { other.micro_batches = 4; }, "other has 4: one fit needs one number");
}

TEST_CASE("a machine is the same whatever convolutions its runs chose", "[study]") {
  const Folder place("machines");
  const auto bench = [&](const std::string& name, const std::string& machine,
                         const std::string& forward_ms = "1") {
    const auto file = place.path / name;
    write_text_atomically(file, R"({"model": "m", "precision": "fp32", "batch": 8, "ranks": 1,
        "steps": 5, "step_ms": 5, "backward_ms": 2, "exposed_comm_ms": 0,
        "update_ms": 0, "forward_ms": )" +
                                    forward_ms + R"(, "backend": ")" + machine + "\"}");
    return file.string();
  };
  const std::string one = bench("a.json", "cpu: avx512, 1 thread"),
                    other = bench("b.json", "cpu: avx512, 1 thread, Winograd 16x16@32x32:fdw"),
                    third = bench("c.json", "cpu: avx2, 1 thread");
  CHECK(read_samples({one, other}, {}).good.size() == 2);
  CHECK_THROWS_WITH(read_samples({one, third}, {}), Contains("one fit needs one machine"));
  const std::string null = bench("d.json", "cpu: avx512, 1 thread", "null");
  CHECK_THROWS_WITH(read_samples({null}, {}), Contains("d.json: has no measurements"));
}
