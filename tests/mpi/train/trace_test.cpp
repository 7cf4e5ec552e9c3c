// The timeline of a training's steps, on all ranks.
#include <algorithm>
#include <cmath>
#include <map>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/train/run.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr double shift_us = 50'000;

/// How far this rank's clock is ahead in these tests.
double ahead_us(int rank) { return rank % 2 == 1 ? shift_us * rank : -shift_us * rank; }

/// Eight steps of all ranks, of which 3 to 5 are traced.
struct TracedTraining {
  comm::ActivityTracker activity;
  std::unique_ptr<comm::Communicator> communicator = test::make_communicator(60, activity);
  comm::Control* control = test::make_control(60, activity);
  std::unique_ptr<backend::Backend> backend = backend::make_cpu_backend({});
  SharedShard shard{*control, 64};
  fs::path run = shard.path().parent_path() / "run";

  void train(const config::StepRange& steps, std::size_t stop_after = 0) {
    train::RunSpec spec;
    config::Config& config = spec.config;
    config.model = "resnet20";
    config.data.train = shard.path().string();
    config.data.workers = 1;
    config.out = run.string();
    config.batch = 16;
    config.epochs = 2;
    config.stop_after = stop_after;
    config.trace = steps;
    config.comm.bucket_mb = 0.1f;
    config.winograd.mode = backend::Winograd::Mode::never;
    spec.binding_report = [](const auto&) { return std::string("{}"); };
    spec.started_s = now_s();
    spec.grid = all_replicas(*control);
    spec.nodes = comm::Nodes(std::vector<comm::RankPlace>(
        static_cast<std::size_t>(control->world()), {"machine", "node"}));
    spec.trace_clock = [shift = ahead_us(control->rank())] {
      return observe::steady_clock_us() + shift;
    };
    train::run_training(spec, *backend, *communicator, *control);
  }

  /// On rank 0.
  json read(const std::string& name) const { return json::parse(read_text(run / "trace" / name)); }
};

struct Sum {
  double first_end = 0, last_begin = 0;
  int ranks = 0;
};

/// "step 3, bucket 0", ...: over all ranks.
std::map<std::string, Sum> sums_in(const json& trace) {
  std::map<std::string, Sum> sums;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] != "reduction") continue;
    Sum& sum = sums[event["args"]["step"].dump() + ", " + event["name"].get<std::string>()];
    const double began = event["ts"], ended = began + event["dur"].get<double>();
    sum.first_end = sum.ranks == 0 ? ended : std::min(sum.first_end, ended);
    sum.last_begin = sum.ranks == 0 ? began : std::max(sum.last_begin, began);
    ++sum.ranks;
  }
  return sums;
}

/// Names of one rank's spans, counted.
std::map<std::string, int> spans_of(const json& trace, int rank) {
  std::map<std::string, int> names;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == rank) ++names[event["name"]];
  return names;
}

}  // namespace

TEST_CASE("clocks that are 50 ms and more apart are aligned within the uncertainty that is stated",
          "[mpi][trace]") {
  TracedTraining training;
  training.train({3, 5});
  bool right = true;
  if (training.control->rank() == 0) {
    const int ranks = training.control->world();
    const json trace = training.read("3-5.json"), &about = trace["otherData"];
    CHECK(about["clocks"].size() == static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      const json& clock = about["clocks"][static_cast<std::size_t>(rank)];
      const double uncertainty = clock["uncertainty_us"];
      CHECK(uncertainty <= about["uncertainty_us"].get<double>());
      CHECK((rank == 0) == (uncertainty == 0));
      for (const double ahead : clock["ahead_us"])
        CHECK(std::abs(ahead - ahead_us(rank)) <= uncertainty + 0.01);
      std::map<std::string, int> names = spans_of(trace, rank);
      for (const char* step : {"step 3", "step 4", "step 5"}) CHECK(names[step] == 1);
      CHECK(names.count("step 2") + names.count("step 6") == 0);
      for (const char* phase : {"loading", "forward", "backward"}) CHECK(names[phase] == 3);
      CHECK(names["update"] > 2);
      CHECK(training.read("3-5/rank-" + std::to_string(rank) +
                          ".json")["distributedInfo"]["rank"] == rank);
    }
    // No rank has a sum before each has given its part to it.
    const auto sums = sums_in(trace);
    for (const auto& [name, sum] : sums) {
      INFO(name);
      CHECK(sum.ranks == ranks);
      CHECK(sum.first_end >= sum.last_begin - 2 * about["uncertainty_us"].get<double>() - 0.01);
    }
    CHECK((ranks == 1) == sums.empty());
    right = sums.size() % 3 == 0;
  }
  REQUIRE(on_every_rank(right));
}

TEST_CASE("a training that stops within the range has the trace up to there", "[mpi][trace]") {
  TracedTraining training;
  training.train({3, 5}, 4);
  bool there = true;
  if (training.control->rank() == 0) there = fs::exists(training.run / "trace" / "3-4.json");
  REQUIRE(on_every_rank(there));
}
