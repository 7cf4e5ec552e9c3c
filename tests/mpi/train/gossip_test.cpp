// Ranks that give half of their weights to another one in each step.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/mpi/train/trainer_ranks.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Trainer;

namespace {

struct Ranks : TrainerRanks {
  Trainer gossip(std::size_t late) {
    train::TrainerSpec spec = small_trainer(micro_rows);
    spec.exchange = reduce::ExchangeKind::gossip;
    spec.gossip.late = late;
    return make(spec);
  }
  bool alone() const { return size() == 1; }  ///< then there is no one to give weights to
};

constexpr std::size_t lateness[] = {0, 1, 2};

/// The largest difference of any rank's learned weights from `mean`.
double spread(Trainer& trainer, const std::vector<float>& mean) {
  return distance(learned_values(trainer, Part::weights), mean);
}

}  // namespace

TEST_CASE("ranks that gossip differ, are equal while settled, and then differ as before",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.alone()) return;
  for (const std::size_t late : lateness) {
    Trainer trainer = ranks.gossip(late);
    ranks.steps(trainer, 0, 4);
    CHECK(on_every_rank(ranks.differ(trainer)));
    const std::uint32_t before = trainer.parameters().hash();
    {
      const reduce::Settled settled(trainer.exchange());
      CHECK(on_every_rank(!ranks.differ(trainer)));
    }
    CHECK(on_every_rank(trainer.parameters().hash() == before));
    CHECK_NOTHROW(trainer.audit(*ranks.control, 4));
    CHECK(on_every_rank(trainer.parameters().hash() == before));
  }
}

TEST_CASE("the first step of ranks that gossip is the exact exchange's, settled",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.alone()) return;
  for (const std::size_t late : lateness) {
    Trainer exact = ranks.exact(), gossip = ranks.gossip(late);
    ranks.steps(exact, 0, 1);
    ranks.steps(gossip, 0, 1);
    const reduce::Settled settled(gossip.exchange());
    for (const Part part : {Part::weights, Part::momentum}) {
      const double apart = distance(learned_values(gossip, part), learned_values(exact, part));
      INFO(late << " steps late: " << apart);
      CHECK(on_every_rank(apart < (part == Part::weights ? 1e-6 : 1e-5)));
    }
  }
}

TEST_CASE("k steps + save + k steps = 2k steps with weights on their way, bit for bit",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.alone()) return;
  for (const std::size_t late : lateness)
    for (const std::size_t k : {1, 4})
      CHECK(resumes_alike(
          ranks, [&] { return ranks.gossip(late); }, k));
}

TEST_CASE("ranks that gossip agree again when steps become small", "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.alone()) return;
  Trainer trainer = ranks.gossip(1);
  ranks.steps(trainer, 0, 4);
  const auto apart = [&] {
    std::vector<float> mean;
    {
      const reduce::Settled settled(trainer.exchange());
      mean = learned_values(trainer, Part::weights);
    }
    return ranks.control->max({spread(trainer, mean)}, "the spread")[0];
  };
  const double before = apart();
  ranks.steps(trainer, 4, 40, 0);
  const double after = apart();
  INFO("from " << before << " to " << after);
  CHECK((before > 1e-4 && after < 1e-5));
}
