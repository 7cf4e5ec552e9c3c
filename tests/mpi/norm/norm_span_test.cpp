// Batch norms whose statistics are those of several ranks' rows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/nn/partition.hpp"
#include "tests/mpi/comm/pretended_nodes.hpp"
#include "tests/mpi/train/trainer_ranks.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Trainer;

namespace {

/// How far a state is from another one: the learned values, and the running statistics.
struct Apart {
  double learned = 0, statistics = 0;
  /// Of one step from the same state. The farthest that was seen is 2e-5; without shared
  /// statistics it is 3e-3.
  bool by_rounding() const { return learned < 1e-4 && statistics < 1e-5; }
};

struct Ranks : TrainerRanks {
  train::TrainerSpec spec(std::size_t norm_ranks, std::size_t rows = micro_rows) const {
    train::TrainerSpec spec = small_trainer(rows);
    spec.norm_ranks = norm_ranks;
    spec.average = {.decay = 0.9f};
    return spec;
  }
  Trainer shared() { return make(spec(size())); }

  /// One rank that has the rows of all, in micro-batches of `rows`.
  Trainer alone(std::size_t rows) {
    train::TrainerSpec spec = small_trainer(rows);
    spec.average = {.decay = 0.9f};
    return Trainer(spec, *backend, solo_);
  }

  /// A step with `global` rows, of which this rank has its share in each micro-batch.
  void step(Trainer& trainer, std::size_t number, std::size_t global) const {
    const Rows rows(global + number);
    const auto sharers = static_cast<int>(size()), mine = static_cast<int>(rank());
    std::size_t first = 0, count = 0;
    for (int r = 0; r <= mine; ++r) {
      first += count;
      count = 0;
      for (const train::MicroBatch& part :
           train::plan_micro_batches(global, sharers, r, trainer.program_spec().batch))
        count += part.rows;
    }
    trainer.step(rows.batch(number + first, count), global, 0.05f);
  }
  static void step_alone(Trainer& trainer, std::size_t number, std::size_t global) {
    const Rows rows(global + number);
    trainer.step(rows.batch(number, global), global, 0.05f);
  }

  /// The farthest that `trainer` is from one rank after any of the steps, whose numbers of rows are
  /// given. Both begin each step with the state of `trainer`, so that no rounding grows from step
  /// to step.
  Apart from_alone(Trainer& trainer, const std::vector<std::size_t>& globals,
                   std::size_t rows_alone) {
    Trainer one = alone(rows_alone);
    Apart farthest;
    for (std::size_t step = 0; step < globals.size(); ++step) {
      for (const Part part : saved_parts) copy_part(trainer, one, part);
      this->step(trainer, step, globals[step]);
      step_alone(one, step, globals[step]);
      const Apart now = apart(trainer, one);
      farthest.learned = std::max(farthest.learned, now.learned);
      farthest.statistics = std::max(farthest.statistics, now.statistics);
    }
    return farthest;
  }

  static Apart apart(Trainer& a, Trainer& b) {
    const std::vector<float> all_a = all_values(a, Part::weights),
                             all_b = all_values(b, Part::weights);
    const auto learned = static_cast<std::ptrdiff_t>(learned_values(b, Part::weights).size());
    const auto tail = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + learned, all.end());
    };
    const double statistics = distance(tail(all_a), tail(all_b));
    const double weights =
        distance(learned_values(a, Part::weights), learned_values(b, Part::weights));
    // NaN is far.
    return {std::isnan(weights) ? 1 : weights, std::isnan(statistics) ? 1 : statistics};
  }

 private:
  SoloCommunicator solo_;
};

}  // namespace

TEST_CASE("ranks that share batch norm's statistics step as one rank with all rows does",
          "[mpi][norm_span]") {
  Ranks ranks;
  const std::vector<std::size_t> globals(8, ranks.global());
  Trainer shared = ranks.shared(), apart = ranks.exact();
  const Apart near = ranks.from_alone(shared, globals, ranks.global());
  const Apart far = ranks.from_alone(apart, globals, ranks.global());
  INFO("shared: " << near.learned << ", " << near.statistics << "; apart: " << far.learned << ", "
                  << far.statistics);
  CHECK(on_every_rank(near.by_rounding()));
  CHECK(on_every_rank(!ranks.differ(shared)));
  if (ranks.size() > 1) CHECK(on_every_rank(far.learned > 1e-3 && far.statistics > 1e-3));
}

TEST_CASE("rows count alike in shared statistics, however many a rank has, or none",
          "[mpi][norm_span]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  const std::size_t size = ranks.size();
  // Between full steps: one row less than all have, two more than all have one, and fewer than
  // there are ranks.
  const std::vector<std::size_t> globals{ranks.global(), ranks.global() - 1, size + 1,
                                         size - 1,       ranks.global(),     size - 1};
  Trainer shared = ranks.shared();
  const Apart near = ranks.from_alone(shared, globals, ranks.global());
  INFO(near.learned << ", " << near.statistics);
  CHECK(on_every_rank(near.by_rounding()));
  CHECK(on_every_rank(!ranks.differ(shared)));
}

TEST_CASE("each group of ranks has its own statistics, as a micro-batch of one rank has",
          "[mpi][norm_span]") {
  Ranks ranks;
  if (ranks.size() != 4) return;
  Trainer pairs = ranks.make(ranks.spec(2));
  const Apart near =
      ranks.from_alone(pairs, std::vector<std::size_t>(5, ranks.global()), 2 * micro_rows);
  INFO(near.learned);
  // The running statistics of micro-batches come one after the other, those of ranks at once.
  CHECK(on_every_rank(near.learned < 1e-4));
  CHECK(on_every_rank(!ranks.differ(pairs)));
}

TEST_CASE("shared statistics are the same bits where backward makes forward again",
          "[mpi][norm_span]") {
  Ranks ranks;
  train::TrainerSpec again = ranks.spec(ranks.size(), micro_rows / 2);
  again.program.recompute = parse_recompute("3", "recompute");
  Trainer kept = ranks.make(ranks.spec(ranks.size(), micro_rows / 2)), made = ranks.make(again);
  REQUIRE(made.memory().made_again > 0);
  for (std::size_t step = 0; step < 3; ++step) {
    ranks.step(kept, step, ranks.global());
    ranks.step(made, step, ranks.global());
  }
  CHECK(on_every_rank(made.parameters().hash() == kept.parameters().hash()));
}

TEST_CASE("shared statistics go with sums over two levels", "[mpi][norm_span]") {
  Ranks ranks;
  if (ranks.size() != 4) return;
  const comm::Nodes nodes = blocks({2, 2});
  const auto two_level =
      comm::two_level_or_flat(*ranks.communicator, *ranks.control, nodes, {.deadline_s = 60}, "");
  REQUIRE(on_every_rank(two_level != nullptr));
  Trainer trainer(ranks.spec(4), *ranks.backend, *two_level);
  const Apart near =
      ranks.from_alone(trainer, std::vector<std::size_t>(5, ranks.global()), ranks.global());
  INFO(near.learned << ", " << near.statistics);
  CHECK(on_every_rank(near.by_rounding()));
}

TEST_CASE("gradients that travel as int8 or as products do not mix with shared statistics",
          "[mpi][norm_span]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  for (const reduce::ExchangeKind kind :
       {reduce::ExchangeKind::int8, reduce::ExchangeKind::power_sgd}) {
    train::TrainerSpec spec = ranks.spec(ranks.size());
    spec.exchange = kind;
    spec.power_sgd.rank = 2;
    Trainer trainer = ranks.make(spec);
    const std::vector<std::size_t> globals{ranks.global(), ranks.size() - 1, ranks.global()};
    const Apart near = ranks.from_alone(trainer, globals, ranks.global());
    INFO(near.learned << ", " << near.statistics);
    CHECK(on_every_rank(near.statistics < 1e-5));  // these do not travel narrow
    CHECK(on_every_rank(!ranks.differ(trainer)));
  }
}

TEST_CASE("the norms that still train share their statistics where layers are frozen",
          "[mpi][norm_span]") {
  Ranks ranks;
  train::TrainerSpec spec = ranks.spec(ranks.size());
  spec.network = nn::with_frozen(spec.network, nn::Freeze::layer1);
  Trainer shared(spec, *ranks.backend, *ranks.communicator);
  train::TrainerSpec all = spec;
  all.norm_ranks = 1;
  all.program.batch = ranks.global();
  SoloCommunicator solo;
  Trainer one(all, *ranks.backend, solo);
  ranks.step(shared, 0, ranks.global());
  Ranks::step_alone(one, 0, ranks.global());
  const Apart near = Ranks::apart(shared, one);
  INFO(near.learned << ", " << near.statistics);
  CHECK(on_every_rank(near.by_rounding()));
}

TEST_CASE("k steps + save + k steps = 2k steps with shared statistics, bit for bit",
          "[mpi][norm_span]") {
  Ranks ranks;
  CHECK(resumes_alike(
      ranks, [&] { return ranks.shared(); }, 3));
}
