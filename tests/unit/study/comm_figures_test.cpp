#include "lockstep/study/machine/comm_figures.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Contains;

namespace {

/// 4 KB to 256 MB, each twice the one before.
std::vector<CommPoint> points_of(double (*seconds)(double bytes)) {
  std::vector<CommPoint> points;
  for (double bytes = 4096; bytes < 3e8; bytes *= 2) points.push_back({bytes, seconds(bytes)});
  return points;
}

}  // namespace

TEST_CASE("one line gives one regime with its alpha and beta", "[comm_figures]") {
  const auto regimes = fit_regimes(points_of([](double bytes) { return 50e-6 + bytes / 1e9; }));
  REQUIRE(regimes.size() == 1);
  CHECK(regimes[0].latency_s == Approx(50e-6).epsilon(1e-6));
  CHECK(regimes[0].bytes_per_s == Approx(1e9).epsilon(1e-6));
}

TEST_CASE("between measured sizes the time is theirs in proportion, and outside a regime's",
          "[comm_figures]") {
  const VerbFigures figures = figures_of({{1000, 2e-3}, {2000, 3e-3}, {3000, 7e-3}});
  CHECK(seconds_of(figures, 2000) == Approx(3e-3));
  CHECK(seconds_of(figures, 2500) == Approx(5e-3));
  CHECK(seconds_of(figures, 500) == Approx(figures.regimes.front().seconds(500)));
  CHECK(seconds_of(figures, 9000) == Approx(figures.regimes.back().seconds(9000)));
  // What is typical counts, where it was measured.
  const VerbFigures busy = figures_of({{1000, 2e-3, 4e-3}, {2000, 3e-3, 6e-3}});
  CHECK(seconds_of(busy, 1500) == Approx(5e-3));
  CHECK(seconds_of(busy, 500) == Approx(2 * busy.regimes.front().seconds(500)));
}

TEST_CASE("two protocols give two regimes, cut where they change", "[comm_figures]") {
  const auto regimes = fit_regimes(points_of(
      [](double bytes) { return bytes < 300e3 ? 10e-6 + bytes / 1e9 : 200e-6 + bytes / 8e9; }));
  REQUIRE(regimes.size() == 2);
  CHECK(regimes[0].latency_s == Approx(10e-6).epsilon(1e-6));
  CHECK(regimes[0].bytes_per_s == Approx(1e9).epsilon(1e-6));
  CHECK(regimes[0].to_bytes == 262144);
  CHECK(regimes[1].latency_s == Approx(200e-6).epsilon(1e-6));
  CHECK(regimes[1].bytes_per_s == Approx(8e9).epsilon(1e-6));
}

TEST_CASE("errors of some percent neither cut a line nor move it far", "[comm_figures]") {
  const auto regimes = fit_regimes(points_of([](double bytes) {
    return (200e-6 + bytes / 1.25e8) * (1 + 0.02 * std::sin(7 * std::log(bytes)));
  }));
  REQUIRE(regimes.size() == 1);
  CHECK(regimes[0].latency_s == Approx(200e-6).epsilon(0.1));
  CHECK(regimes[0].bytes_per_s == Approx(1.25e8).epsilon(0.05));
}

TEST_CASE("parameters are never negative", "[comm_figures]") {
  for (const CommRegime& r : fit_regimes({{1000, 1e-6}, {2000, 4e-6}, {4000, 16e-6}}))
    CHECK((r.latency_s >= 0 && r.bytes_per_s > 0));
  for (const CommRegime& r : fit_regimes({{1000, 4e-6}, {2000, 3e-6}, {4000, 2e-6}}))
    CHECK((r.latency_s >= 0 && r.bytes_per_s > 0));
}

TEST_CASE("a size at which the bandwidth falls is a cliff", "[comm_figures]") {
  // 16 ranks of a bad cluster (NVIDIA/nccl issue 1453): 29.5 GB/s of bus bandwidth at 32 MB, 5.3 at
  // 64 MB.
  const double factor = bus_factor("all-reduce", 16);
  const auto seconds = [factor](double bytes, double busbw) { return factor * bytes / busbw; };
  const auto cliffs = find_cliffs({{16e6, seconds(16e6, 25e9)},
                                   {32e6, seconds(32e6, 29.5e9)},
                                   {64e6, seconds(64e6, 5.3e9)},
                                   {128e6, seconds(128e6, 5.2e9)}});
  REQUIRE(cliffs.size() == 1);
  CHECK(cliffs[0].from_bytes == 32e6);
  CHECK(cliffs[0].to_bytes == 64e6);
  CHECK(cliffs[0].slower == Approx(29.5 / 5.3));
}

TEST_CASE("bus factors are those of nccl-tests", "[comm_figures]") {
  CHECK(bus_factor("all-reduce", 8) == Approx(1.75));
  CHECK(bus_factor("all-reduce, queued", 8) == Approx(1.75));
  CHECK(bus_factor("reduce-scatter", 8) == Approx(0.875));
  CHECK(bus_factor("all-gather", 8) == Approx(0.875));
  CHECK(bus_factor("broadcast", 8) == 1);
  CHECK(bus_factor("send", 8) == 1);
}

TEST_CASE("comm.json reads back, and a bad one names its file and what is wrong",
          "[comm_figures]") {
  CommFigures figures{.ranks = 8, .nodes = 2, .transport = "MPI", .verbs = {}, .nccl = {}};
  figures.verbs["all-reduce"] =
      figures_of(points_of([](double bytes) { return 50e-6 + bytes / 1e9; }));
  const CommFigures again = parse_comm(to_json(figures), "comm.json");
  CHECK(again.ranks == 8);
  CHECK(again.transport == "MPI");
  REQUIRE(again.verbs.at("all-reduce").regimes.size() == 1);
  CHECK(again.verbs.at("all-reduce").regimes[0].latency_s == Approx(50e-6).epsilon(1e-6));
  for (const char* bad :
       {"", "{}", R"({"ranks": -1})",
        R"({"ranks": -1, "nodes": 1, "transport": "MPI", "verbs": {}})",
        R"({"ranks": 2, "nodes": -1, "transport": "MPI", "verbs": {}})",
        R"({"ranks": 2, "nodes": 1, "transport": "MPI"})",
        R"({"ranks": 2, "nodes": 1, "transport": "MPI", "verbs": {"send": {"points": []}}})",
        R"({"ranks": 2, "nodes": 1, "transport": "MPI", "verbs": {"send": {"points":
            [{"bytes": 8, "seconds": 1}, {"bytes": 4, "seconds": 1}]}}})"}) {
    CHECK_THROWS_AS(parse_comm(bad, "bad.json"), InputError);
    CHECK_THROWS_WITH(parse_comm(bad, "bad.json"), Contains("bad.json"));
  }
}
