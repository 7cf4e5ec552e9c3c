#include "lockstep/study/simulate/timeline.hpp"

#include <catch2/catch.hpp>

#include "lockstep/study/machine/node_paths.hpp"
#include "tests/unit/cluster/topology_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;

namespace {

/// Three slices of 100 floats; forward takes 5 ms, and each slice is final after 10 ms more.
struct Small {
  nn::ArenaLayout layout;
  backend::TimedTape tape;
  Small() {
    tape.forward.push_back({"forward", 5, {}});
    for (std::size_t s = 0; s < 3; ++s) {
      nn::Slice slice;
      slice.offset = 100 * s;
      slice.size = 100;
      layout.slices.push_back(slice);
      tape.backward.push_back({"back", 10, {s}});
    }
    layout.size = 300;
  }
};

}  // namespace

TEST_CASE("what backward hides is not exposed; the last bucket is", "[timeline]") {
  const Small small;
  const StepTimeline step = simulate_step(small.tape, small.layout, 1, [](double) {
    return ReduceCost{4e-3, 0};
  });
  REQUIRE(step.buckets.size() == 3);
  CHECK(step.buckets[0].ready_ms == Approx(15));
  CHECK(step.buckets[0].end_ms == Approx(19));
  CHECK(step.buckets[2].end_ms == Approx(39));
  CHECK(step.exposed_ms == Approx(4));
  CHECK(step.step_ms() == Approx(39));
}

TEST_CASE("sums that take longer than backward queue up, but delays overlap", "[timeline]") {
  Small small;
  const StepTimeline busy = simulate_step(small.tape, small.layout, 1, [](double) {
    return ReduceCost{20e-3, 0};
  });
  CHECK(busy.step_ms() == Approx(15 + 3 * 20));
  const StepTimeline late = simulate_step(small.tape, small.layout, 1, [](double) {
    return ReduceCost{1e-3, 19e-3};
  });
  CHECK(late.step_ms() == Approx(35 + 20));
  small.tape.update_ms = 6;  // of which two thirds overlap with the last bucket's way
  const StepTimeline updated = simulate_step(small.tape, small.layout, 1, [](double) {
    return ReduceCost{20e-3, 0};
  });
  CHECK(updated.update_ms == Approx(6));
  CHECK(updated.step_ms() == Approx(15 + 3 * 20 + 2));
}

TEST_CASE("ranks that are alike take as long as one, and a slow one keeps all waiting",
          "[timeline]") {
  const Small small;
  const auto cost = [](double) { return ReduceCost{4e-3, 0}; };
  for (const StepTimeline& step : simulate_ranks({small.tape, small.tape}, small.layout, 1, cost)) {
    CHECK(step.step_ms() == Approx(39));
    CHECK(step.buckets[2].end_ms == Approx(39));
  }
  Small slow;
  slow.tape.forward[0].ms += 7;
  const auto steps = simulate_ranks({small.tape, slow.tape}, small.layout, 1, cost);
  CHECK(steps[0].step_ms() == Approx(46));
  CHECK(steps[0].exposed_ms == Approx(11));
  CHECK(steps[1].step_ms() == Approx(46));
  CHECK(steps[1].exposed_ms == Approx(4));
}

TEST_CASE("ranks that are slow in different parts cost the slower of them, not both",
          "[timeline]") {
  Small first, second;
  first.tape.forward[0].ms += 6;
  second.tape.update_ms = 8;
  const auto steps = simulate_ranks({first.tape, second.tape}, first.layout, 1 << 20, [](double) {
    return ReduceCost{4e-3, 0};
  });
  CHECK(steps[0].step_ms() == Approx(35 + 4 + 8));
  CHECK(steps[1].step_ms() == Approx(35 + 4 + 8));
}

TEST_CASE("a rank that ends a step late begins the next one late", "[timeline]") {
  const Small small;
  backend::TimedTape late = small.tape;  // each step takes 35 ms, and this rank's first one 41
  late.update_ms = 6;
  const CostOf free = [](double) { return ReduceCost{}; };
  const std::size_t all_in_one = std::size_t{1} << 20;  // its update is after all sums
  const auto steps = simulate_unlike_steps({{late, small.tape}, {small.tape, late}}, small.layout,
                                           all_in_one, {free, free});
  REQUIRE(steps.size() == 2);
  CHECK(steps[0][0].step_ms() == Approx(41));
  CHECK(steps[0][1].step_ms() == Approx(35));
  CHECK(steps[1][0].step_ms() == Approx(35));
  CHECK(steps[1][1].step_ms() == Approx(47));  // it waits for 6 ms, and is late itself
}

TEST_CASE("one bucket of all gradients hides nothing", "[timeline]") {
  const Small small;
  const StepTimeline step = simulate_step(small.tape, small.layout, 1 << 20, [](double bytes) {
    return ReduceCost{bytes * 1e-6, 0};
  });
  REQUIRE(step.buckets.size() == 1);
  CHECK(step.buckets[0].bytes == 1200);
  CHECK(step.exposed_ms == Approx(1.2));
}

TEST_CASE("on two NUMA nodes unbound ranks reach their GPUs more slowly than bound ones",
          "[node_paths]") {
  const auto paths = node_paths(test::fixture("eight-gpus"), 20);
  REQUIRE(paths.size() == 8);
  for (const RankPath& path : paths) {
    CHECK(path.bound_gb_per_s == Approx(31.5).epsilon(0.01));  // PCIe 4 x16
    // Half of the memory is on the other node; two ranks share each way across: 10 GB/s each.
    CHECK(path.unbound_gb_per_s == Approx(1 / (0.5 / path.bound_gb_per_s + 0.5 / 10)));
  }
  CHECK(paths.front().numa == 0);
  CHECK(paths.back().numa == 1);
}

TEST_CASE("a link between sockets that is fast enough makes binding worth nothing",
          "[node_paths]") {
  for (const RankPath& path : node_paths(test::fixture("eight-gpus"), 1e6))
    CHECK(path.unbound_gb_per_s == Approx(path.bound_gb_per_s));
}

TEST_CASE("each rank has the card that is nearest to its GPU, shared with those as near",
          "[node_paths]") {
  const auto paths = node_paths(test::fixture("p4d"), 40);
  REQUIRE(paths.size() == 8);
  for (std::size_t g = 0; g < paths.size(); ++g) {
    CHECK(paths[g].card == paths[g / 2 * 2].card);
    CHECK(paths[g].card_gpus == 2);
    CHECK_FALSE(paths[g].card_across);
    CHECK(paths[g].card_gb_per_s == Approx(31.5 / 2).epsilon(0.01));
  }
  CHECK(paths[0].card != paths[2].card);
}

TEST_CASE("GPUs below one switch share its link to the processor", "[node_paths]") {
  const auto machine = test::shared_machine("dgx2");
  if (!machine) return;
  for (const RankPath& path : node_paths(*machine, 40))
    CHECK(path.bound_gb_per_s == Approx(15.75 / 4).epsilon(0.01));
}
