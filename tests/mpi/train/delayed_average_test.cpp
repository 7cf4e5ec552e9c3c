// An exchange that does not keep ranks equal, in the trainer and in whole runs: what is evaluated,
// audited, saved and resumed where ranks differ.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/mpi/train/trainer_ranks.hpp"
#include "tests/support/networks/delayed_average.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Trainer;

namespace {

struct Ranks : TrainerRanks {
  Trainer trainer(const DelayedAverageSpec& how) {
    train::TrainerSpec spec = small_trainer(micro_rows);
    spec.make_exchange = DelayedAverage::maker(how);
    return make(spec);
  }
};

}  // namespace

TEST_CASE("averages of the weights after each step are the exact exchange within rounding",
          "[exchange]") {
  Ranks ranks;
  Trainer exact = ranks.exact(), averaged = ranks.trainer({.period = 1, .late = false});
  // Momentum is each rank's own, so only its mean is the exact one.
  const auto [weights, momentum, average] = apart_by_one_step(ranks, exact, averaged, 8);
  INFO(weights << " " << momentum << " " << average);
  CHECK(on_every_rank(weights < 1e-6 && momentum < 1e-5 && average < 1e-6));
}

TEST_CASE("ranks differ between averages, are equal while settled, and then differ as before",
          "[exchange]") {
  Ranks ranks;
  Trainer trainer = ranks.trainer({.period = 3});
  ranks.steps(trainer, 0, 4);
  CHECK(on_every_rank(ranks.differ(trainer) == (ranks.size() > 1)));
  const std::uint32_t before = trainer.parameters().hash();
  {
    const reduce::Settled settled(trainer.exchange());
    CHECK(on_every_rank(!ranks.differ(trainer)));
  }
  CHECK(on_every_rank(trainer.parameters().hash() == before));
  CHECK_NOTHROW(trainer.audit(*ranks.control, 4));
  CHECK(on_every_rank(trainer.parameters().hash() == before));
}

TEST_CASE("an average, a step late, is the mean of the weights plus each rank's own step",
          "[exchange]") {
  Ranks ranks;
  Trainer late = ranks.trainer({.period = 2}), alone = ranks.trainer({.period = 100});
  ranks.steps(late, 0, 2);
  ranks.steps(alone, 0, 2);
  CHECK(on_every_rank(learned_values(late, Part::weights) == learned_values(alone, Part::weights)));
  std::vector<float> mean;
  {
    const reduce::Settled settled(alone.exchange());
    mean = learned_values(alone, Part::weights);
  }
  const std::vector<float> own = learned_values(alone, Part::weights);
  // The statistics are the mean at once.
  const std::size_t first = late.parameters().layout().learned_slices;
  std::vector<float> statistics(late.parameters().layout().slices[first].tensor.count());
  late.parameters().export_slice(Part::weights, first, statistics);
  std::string text(reinterpret_cast<const char*>(statistics.data()), statistics.size() * 4);
  const auto texts = ranks.control->gather(text, "statistics");
  CHECK(std::all_of(texts.begin(), texts.end(), [&](const auto& one) { return one == texts[0]; }));

  // Without the sum, the third step begins from the same weights. It needs the same statistics,
  // too: a batch's sums are of what is above the running mean, and batch norms make their roundings
  // large.
  copy_part(late, alone, Part::weights, first);
  ranks.steps(late, 2, 3);
  ranks.steps(alone, 2, 3);
  const std::vector<float> stepped = learned_values(alone, Part::weights);
  std::vector<float> wanted(stepped.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = stepped[i] + (mean[i] - own[i]);
  const double apart = distance(learned_values(late, Part::weights), wanted);
  INFO(apart);
  CHECK(on_every_rank(apart < 1e-6));
}

TEST_CASE("k steps + save + k steps = 2k steps, bit for bit, on each rank", "[exchange]") {
  for (const std::size_t k : {3, 4}) {  // after three steps a difference is not applied yet
    Ranks ranks;
    CHECK(resumes_alike(
        ranks, [&] { return ranks.trainer({.period = 3}); }, k));
  }
}

TEST_CASE("an exchange whose steps differ is not recorded", "[exchange]") {
  Ranks ranks;
  train::TrainerSpec spec = small_trainer(micro_rows);
  spec.make_exchange = DelayedAverage::maker({.period = 2});
  spec.graph = true;
  CHECK_THROWS_WITH(ranks.make(spec),
                    Catch::Contains("'delayed-average'") && Catch::Contains("--graph"));
}
