// What ranks that share batch norm's statistics send, compared with what trainers send.
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/study/simulate/timeline.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/comm/watched_communicator.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/study/machine/machine.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/train/trainer_fixture.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;

constexpr int world = 3;  // a row for each

/// The sizes of gathers of batch norms, in bytes of all ranks' chunks.
struct Gathers final : comm::CollectiveObserver {
  bool watches() const override { return true; }
  double clock_us() const override { return 0; }
  void ended(comm::WatchedCollective one) override {
    if (!one.name.starts_with("batch norm before")) return;
    CHECK(one.verb == "AllGather");
    (one.name.ends_with(" backward") ? backward : forward).push_back(one.bytes);
  }
  std::vector<std::size_t> forward, backward;
};

config::Config sharing(const std::string& model, int norm_ranks) {
  return given(
      "model = \"" + model + "\"\n[model-options]\nnorm-ranks = " + std::to_string(norm_ranks),
      world);
}

/// All bytes between the ranks in `steps` steps, and rank 0's gathers.
std::size_t bytes_of(const config::Config& config, std::size_t steps, Gathers& seen) {
  Queues queues;
  const auto told = threads_tell(queues, world, true, [&](comm::Communicator& below) {
    Gathers mine;
    const auto ranks = watch_collectives(below, mine);
    const auto backend = backend::make_cpu_backend({});
    train::Trainer trainer(train::make_trainer_spec(config, small_data(), world), *backend, *ranks);
    const Rows rows;
    data::Batch one = rows.batch;
    one.rows = one.capacity = 1;
    for (std::size_t step = 0; step < steps; ++step) trainer.step(one, few_rows, 0.05f);
    if (below.rank() == 0) seen = mine;
    return std::string();
  });
  CHECK(told == std::vector<std::string>(world));
  return queues.bytes;
}

/// By direction, in order of size: a tape's order is the backend's.
std::vector<std::size_t> sizes(const std::vector<NormGather>& all, bool backward) {
  std::vector<std::size_t> bytes;
  for (const NormGather& one : all)
    if (one.backward == backward) bytes.push_back(world * one.floats * sizeof(float));
  std::ranges::sort(bytes);
  return bytes;
}

std::vector<std::size_t> sorted(std::vector<std::size_t> values) {
  std::ranges::sort(values);
  return values;
}

}  // namespace

TEST_CASE("the gathers of batch norm's statistics that are simulated are those of a step",
          "[norm_gathers][trainer]") {
  // One with skips without a convolution, one with those, and one with bottlenecks.
  for (const std::string model : {"resnet20", "resnet18", "resnet50"}) {
    INFO(model);
    const config::Config config = sharing(model, world);
    Gathers seen;
    bytes_of(config, 1, seen);
    const auto all = norm_gathers(infer::make_network(config, small_data()));
    CHECK(sorted(seen.forward) == sizes(all, false));
    CHECK(sorted(seen.backward) == sizes(all, true));
  }
}

TEST_CASE("a step sends as many bytes more with shared statistics as is simulated",
          "[norm_gathers][trainer]") {
  const auto of_a_step = [](int norm_ranks) {
    Gathers none;
    const config::Config config = sharing("resnet20", norm_ranks);
    return bytes_of(config, 2, none) - bytes_of(config, 1, none);
  };
  std::size_t floats = 0;
  for (const NormGather& one :
       norm_gathers(infer::make_network(sharing("resnet20", world), small_data())))
    floats += one.floats;
  CHECK(of_a_step(world) - of_a_step(1) == world * (world - 1) * floats * sizeof(float));
}

TEST_CASE("each gather lengthens a step by its time, and what it holds up is not exposed twice",
          "[norm_gathers][timeline]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet50", 224, 1000));
  const auto all = norm_gathers(network);
  CHECK(std::ranges::count_if(all, &NormGather::backward) == 49);  // 53, of which 4 share one
  CHECK(all.size() == 98);
  std::size_t floats = 0;
  for (const NormGather& one : all) floats += one.floats;
  CHECK(floats == 4 * 26560 + 98);

  const backend::TimedTape tape =
      time_tape(network, 8, backend::Precision::fp32, backend::LinePace{.row_ms = 10});
  const auto cost = [](double bytes) { return ReduceCost{.busy_s = bytes * 1e-9}; };
  const auto step = [&](double gather_s) {
    return simulate_step(tape, network, 4'000'000, cost, [=](double) { return gather_s; });
  };
  const StepTimeline without = step(0), with = step(1e-3);
  CHECK(without.norms_ms == Approx(0).margin(1e-9));
  CHECK(without.step_ms() ==
        Approx(simulate_step(tape, backend::plain_layout(network), 4'000'000, cost).step_ms()));
  CHECK(with.norms_ms == Approx(98));
  CHECK(with.compute_ms() == Approx(without.compute_ms()));
  CHECK(with.exposed_ms <= without.exposed_ms);  // sums move meanwhile
  CHECK(with.buckets.front().ready_ms > without.buckets.front().ready_ms + 49);
}

TEST_CASE("a group on one node gathers at the node's pace, across nodes these share their links",
          "[norm_gathers]") {
  const NetworkProfile network{.node_gb_per_s = 1,
                               .inside_gb_per_s = 10,
                               .latency_us = 30,
                               .inside_latency_us = 2,
                               .message_us = 5};
  const Layout pairs{.ranks = 8, .per_node = 2};
  CHECK(gather_s(network, pairs, 2, 1e6) == Approx(2e-6 + 5e-6 + 1e-4));
  // Each of two ranks sends to the two ranks of the other node.
  CHECK(gather_s(network, pairs, 4, 1e6) == Approx(30e-6 + 3 * 5e-6 + 4e-3));
  CHECK(gather_s(network, {.ranks = 4, .per_node = 1}, 4, 1e6) == Approx(30e-6 + 3 * 5e-6 + 3e-3));
}
