// Batch norm over the rows of several ranks, which are threads here.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/ports/tcp/tcp_ranks.hpp"
#include "tests/unit/train/trainer_fixture.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;

using State = std::vector<std::vector<float>>;

config::Config with_norm_ranks(int norm_ranks, int ranks) {
  return given("[model-options]\nnorm-ranks = " + std::to_string(norm_ranks), ranks);
}

/// The state after three steps of 3 rows and, between them, one of 2, of which a third rank has
/// none. This rank's part begins with the first row that the ranks before it leave.
State trained(comm::Communicator& ranks, int norm_ranks) {
  const auto backend = backend::make_cpu_backend({});
  train::Trainer trainer(
      make_trainer_spec(with_norm_ranks(norm_ranks, ranks.world()), small_data(), ranks.world()),
      *backend, ranks);
  const Rows rows;
  for (const std::size_t global : {3, 2, 3, 3}) {
    data::Batch part = rows.batch;
    part.rows = part.capacity = 0;
    for (const train::MicroBatch& piece : train::plan_micro_batches(
             global, ranks.world(), ranks.rank(), trainer.program_spec().batch))
      part.rows = part.capacity = part.rows + piece.rows;
    const auto first = ranks.world() == 1 ? 0 : static_cast<std::size_t>(ranks.rank());
    part.images = rows.pixels.data() + first * small_side * small_side;
    part.targets = rows.targets.data() + first;
    trainer.step(part, global, 0.05f);
  }
  return state(trainer, backend::Part::weights);
}

/// The largest ||a - b|| / ||b|| of a tensor; NaN when a value is NaN.
double farthest(const State& a, const State& b) {
  double most = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    double apart = 0, norm = 1e-12;
    for (std::size_t i = 0; i < a[s].size(); ++i) {
      apart += std::pow(static_cast<double>(a[s][i]) - static_cast<double>(b[s][i]), 2);
      norm += std::pow(static_cast<double>(b[s][i]), 2);
    }
    const double now = std::sqrt(apart / norm);
    if (!(now <= most)) most = now;
  }
  return most;
}

/// The state of each of three ranks.
std::vector<State> over_queues(bool copies, int norm_ranks) {
  std::vector<State> states(3);
  Queues queues;
  const auto told = threads_tell(queues, 3, copies, [&](comm::Communicator& ranks) -> std::string {
    states[static_cast<std::size_t>(ranks.rank())] = trained(ranks, norm_ranks);
    return "";
  });
  CHECK(told == std::vector<std::string>(3));
  return states;
}

}  // namespace

TEST_CASE("moments of parts, merged from floats, are those of all values in double",
          "[norm_span]") {
  // Some parts have no values, one has a single one, and means are far from each other and from 0.
  const std::vector<std::size_t> counts{0, 7, 1, 0, 130, 40};
  for (const double far : {0.0, 3.0, 1e4}) {
    std::vector<double> all;
    backend::SampleMoments merged;
    for (std::size_t part = 0; part < counts.size(); ++part) {
      double mean = 0, squares = 0;
      std::vector<double> x;
      for (std::size_t i = 0; i < counts[part]; ++i)
        x.push_back(far + 0.3 * static_cast<double>(part) +
                    static_cast<double>(draw(3, part, i, Draw::synth) >> 11) * 0x1p-53);
      const auto n = static_cast<double>(x.size());
      for (const double v : x) mean += v / n;
      for (const double v : x) squares += (v - mean) * (v - mean);
      merged = backend::merged(merged, {n, static_cast<float>(mean), static_cast<float>(squares)});
      all.insert(all.end(), x.begin(), x.end());
    }
    const auto n = static_cast<double>(all.size());
    double mean = 0, variance = 0;
    for (const double v : all) mean += v / n;
    for (const double v : all) variance += (v - mean) * (v - mean) / n;
    INFO("around " << far);
    CHECK(merged.count == n);
    // A float is rounded to 6e-8 of its value; what that moves a mean by counts in the distances.
    CHECK(std::abs(merged.mean - mean) <= 1e-7 * (far + 3));
    CHECK(std::abs(merged.variance() - variance) <= 1e-7 * (far + 3) * (1 + variance));
  }
  CHECK(backend::merged({}, {}).count == 0);
  CHECK(std::isnan(backend::merged({2, 1, 1}, {2, std::nan(""), 1}).mean));
}

TEST_CASE("three ranks whose batch norms share statistics train as one rank with all rows",
          "[trainer][norm_span]") {
  SoloCommunicator alone;
  const State solo = trained(alone, 1);
  const std::vector<State> shared = over_queues(false, 3), apart = over_queues(false, 1);
  INFO(farthest(shared[0], solo) << " with the span, " << farthest(apart[0], solo) << " without");
  CHECK(farthest(shared[0], solo) < 1e-4);
  CHECK(farthest(apart[0], solo) > 1e-2);
  CHECK(shared[1] == shared[0]);
  CHECK(shared[2] == shared[0]);
}

TEST_CASE("shared statistics give the same bits over TCP and over queues that copy or do not",
          "[trainer][norm_span][tcp]") {
  const std::vector<State> wanted = over_queues(false, 3);
  CHECK(over_queues(true, 3) == wanted);
  std::vector<State> states(3);
  const auto told = ranks_tell(3, [&](comm::Control& control) -> std::string {
    const auto communicator = connect();
    states[static_cast<std::size_t>(control.rank())] = trained(*communicator, 3);
    return "";
  });
  CHECK(told == std::vector<std::string>(3));
  CHECK(states == wanted);
}

TEST_CASE("a rank that is missing in batch norm's statistics is named after the deadline",
          "[trainer][norm_span]") {
  for (const bool copies : {false, true}) {
    Queues queues;
    const auto told = threads_tell(
        queues, 3, copies,
        [&](comm::Communicator& ranks) -> std::string {
          backend::NormSpan span(ranks.split(0, ranks.rank(), "batch norm's span"));
          std::vector<float> chunks(9, static_cast<float>(ranks.rank()));
          span.gather(chunks, "batch norm before layer1");
          if (chunks != std::vector<float>{0, 0, 0, 1, 1, 1, 2, 2, 2}) return "other numbers";
          if (ranks.rank() == 1) return "gone";
          span.gather(chunks, "batch norm before layer2");
          return "arrived";
        },
        0.5);
    CHECK(told[1] == "gone");
    for (const std::size_t rank : {0, 2})
      CHECK_THAT(told[rank], Catch::StartsWith("batch norm before layer2 of group batch norm's "
                                               "span: rank 1 did not arrive within"));
  }
}

TEST_CASE("a backend that cannot share batch norm's statistics is named with the key",
          "[trainer][norm_span]") {
  const auto clock = backend::make_clock_backend({});
  SoloCommunicator none;
  CHECK(backend::make_norm_span(1, *clock, none) == nullptr);
  CHECK_THROWS_WITH(backend::make_norm_span(2, *clock, none),
                    Catch::StartsWith("model-options.norm-ranks = 2: the clock backend"));
}
