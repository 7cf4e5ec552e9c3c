// A step that has rows for all ranks but the last one, where ranks differ.
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "tests/mpi/train/trainer_ranks.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Trainer;

namespace {

struct Ranks : TrainerRanks {
  /// Each rank is a group.
  Trainer local() {
    train::TrainerSpec spec = small_trainer(micro_rows);
    spec.exchange = reduce::ExchangeKind::local;
    spec.local = {.groups = each_alone(), .every = 3};
    return make(spec);
  }
  Trainer gossip(std::size_t late) {
    train::TrainerSpec spec = small_trainer(micro_rows);
    spec.exchange = reduce::ExchangeKind::gossip;
    spec.gossip.late = late;
    return make(spec);
  }
  /// A step in which each rank but the last one has a row.
  void uneven_step(Trainer& trainer) const {
    const Rows rows(size());
    trainer.step(rows.batch(rank(), rank() + 1 < size() ? 1 : 0), size() - 1, 0.05f);
  }
};

std::vector<float> statistics(Trainer& trainer) {
  const std::vector<float> all = all_values(trainer, Part::weights);
  const std::size_t learned = learned_values(trainer, Part::weights).size();
  return {all.begin() + static_cast<std::ptrdiff_t>(learned), all.end()};
}

}  // namespace

// A rank's own statistics fade without anything new, and others' count for more than one: only the
// mean has a meaning, and it is all that is evaluated and saved. Gossip counts weights on their way
// with the ranks' own, and only the latter, a part of w = 2 / (2 + late), change in a step.
TEST_CASE("a rank without rows adds no zeros to the running statistics of ranks that differ",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  const auto check_mean = [&](Trainer other, double part) {
    Trainer exact = ranks.exact();
    std::vector<float> wanted = statistics(exact);
    ranks.uneven_step(exact);
    const std::vector<float> after = statistics(exact);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] += static_cast<float>(part) * (after[i] - wanted[i]);
    ranks.uneven_step(other);
    const double own = distance(statistics(other), wanted);
    const reduce::Settled settled(other.exchange());
    const double mean = distance(statistics(other), wanted);
    INFO(other.exchange().note() << ": own " << own << ", mean " << mean);
    CHECK(on_every_rank(mean < 1e-6));
    // Zeros that stay would be seen. Two ranks that give each other half are at the mean at once.
    CHECK(on_every_rank(own > 1e-3 || ranks.size() == 2));
  };
  check_mean(ranks.local(), 1);
  for (const std::size_t late : {0, 1, 2})
    check_mean(ranks.gossip(late), 2 / (2 + static_cast<double>(late)));
}
