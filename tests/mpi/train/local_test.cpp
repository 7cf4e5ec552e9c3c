// Groups of ranks that agree on their weights every few steps.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/mpi/train/trainer_ranks.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using reduce::ExchangeKind;
using train::Trainer;

namespace {

struct Ranks : TrainerRanks {
  /// Each rank is a group.
  Trainer alone(reduce::LocalSpec how) {
    how.groups = each_alone();
    return in_groups(how);
  }
  Trainer in_groups(const reduce::LocalSpec& how) {
    train::TrainerSpec spec = small_trainer(micro_rows);
    spec.exchange = ExchangeKind::local;
    spec.local = how;
    return make(spec);
  }
  bool differ_unless_alone(Trainer& trainer) const { return differ(trainer) == (size() > 1); }
};

}  // namespace

TEST_CASE("groups that agree in each of 50 steps are the exact exchange within rounding",
          "[mpi][exchange]") {
  Ranks ranks;
  Trainer exact = ranks.exact(), alone = ranks.alone({.every = 1});
  const auto [weights, momentum, average] = apart_by_one_step(ranks, exact, alone, 50);
  INFO(weights << " " << momentum << " " << average);
  CHECK(on_every_rank(weights < 1e-6 && momentum < 1e-5 && average < 1e-6));
}

TEST_CASE("one group of all ranks, and groups before their first step, have the exact bits",
          "[mpi][exchange]") {
  Ranks ranks;
  Trainer exact = ranks.exact(), later = ranks.alone({.every = 3, .from_step = 4});
  ranks.steps(exact, 0, 4);
  ranks.steps(later, 0, 4);
  CHECK(on_every_rank(later.parameters().hash() == exact.parameters().hash()));
  ranks.steps(later, 4, 5);
  CHECK(on_every_rank(ranks.differ_unless_alone(later)));
}

TEST_CASE("groups differ between agreements, are equal while settled, and then differ as before",
          "[mpi][exchange]") {
  Ranks ranks;
  Trainer trainer = ranks.alone({.every = 3});
  ranks.steps(trainer, 0, 4);
  CHECK(on_every_rank(ranks.differ_unless_alone(trainer)));
  const std::uint32_t before = trainer.parameters().hash();
  {
    const reduce::Settled settled(trainer.exchange());
    CHECK(on_every_rank(!ranks.differ(trainer)));
  }
  CHECK(on_every_rank(trainer.parameters().hash() == before));
  CHECK_NOTHROW(trainer.audit(*ranks.control, 4));
  CHECK(on_every_rank(trainer.parameters().hash() == before));
}

TEST_CASE("ranks of a group have the same bits while groups differ", "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() < 4) return;
  Trainer trainer = ranks.in_groups({.groups = {0, 0, 1, 1}, .every = 4});
  ranks.steps(trainer, 0, 3);
  const auto hashes = ranks.control->gather(std::to_string(trainer.parameters().hash()), "hashes");
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[2] == hashes[3]);
  CHECK(hashes[0] != hashes[2]);
}

TEST_CASE("groups need not meet before their next agreement, nor for more than 8 steps",
          "[mpi][exchange]") {
  Ranks ranks;
  const auto in_how_many = [&](const reduce::LocalSpec& how, std::size_t steps) {
    Trainer trainer = ranks.alone(how);
    std::vector<std::size_t> all{trainer.exchange().meets_every()};
    for (std::size_t step = 0; step < steps; ++step) {
      ranks.steps(trainer, step, step + 1);
      all.push_back(trainer.exchange().meets_every());
    }
    return all;
  };
  CHECK(in_how_many({.every = 3, .from_step = 2}, 6) ==
        std::vector<std::size_t>{1, 1, 3, 2, 1, 3, 2});
  CHECK(in_how_many({.every = 10}, 3) == std::vector<std::size_t>{8, 8, 8, 7});
  CHECK(in_how_many({.every = 1}, 2) == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE("an outer momentum steps from the agreed weights along the way to the mean",
          "[mpi][exchange]") {
  Ranks ranks;
  constexpr float momentum = 0.5f, lr = 0.7f;
  Trainer first = ranks.exact(), plain = ranks.alone({.every = 1});
  Trainer outer = ranks.alone({.every = 1, .outer_momentum = momentum, .outer_lr = lr});
  const std::vector<float> before = learned_values(first, Part::weights);
  ranks.steps(plain, 0, 1);
  ranks.steps(outer, 0, 1);
  const std::vector<float> mean = learned_values(plain, Part::weights);
  std::vector<float> wanted(mean.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = before[i] - lr * (1 + momentum) * (before[i] - mean[i]);
  CHECK(on_every_rank(distance(learned_values(outer, Part::weights), wanted) < 1e-6));
  // A step at learning rate 0 leaves the mean where it is: what remains is the momentum.
  const Rows rows(ranks.global());
  outer.step(rows.batch(micro_rows * ranks.rank(), micro_rows), ranks.global(), 0);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] -= lr * momentum * momentum * (before[i] - mean[i]);
  CHECK(on_every_rank(distance(learned_values(outer, Part::weights), wanted) < 1e-6));
}

TEST_CASE("k steps + save + k steps = 2k steps between agreements, bit for bit, on each rank",
          "[mpi][exchange]") {
  for (const float momentum : {0.0f, 0.9f}) {
    Ranks ranks;
    const reduce::LocalSpec how{.every = 2, .from_step = 1, .outer_momentum = momentum};
    CHECK(resumes_alike(
        ranks, [&] { return ranks.alone(how); }, 4));
  }
}

TEST_CASE("groups begin at their mean where the state is of other groups, or of a step before any",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  const auto make = [&](float momentum) {
    return ranks.alone({.every = 2, .outer_momentum = momentum});
  };
  for (const float momentum : {0.0f, 0.9f}) {
    Trainer saving = make(momentum);
    ranks.steps(saving, 0, 3);
    SavedTrainer saved = save(saving, *ranks.control);
    const auto resumed = [&] {  // one agreement later, at a learning rate of 0
      Trainer trainer = make(momentum);
      load(trainer, saved, 3);
      ranks.steps(trainer, 3, 4, 0);
      return learned_values(trainer, Part::weights);
    };
    const reduce::Settled settled(saving.exchange());
    const std::vector<float> mean = learned_values(saving, Part::weights);
    // With an outer momentum the agreed weights and the velocity are kept, and move the mean.
    const auto velocity = std::exchange(saved.parts["velocity"], "");
    const auto agreed = std::exchange(saved.parts["agreed"], "");
    std::erase_if(saved.parts, [](const auto& one) { return one.second.empty(); });
    auto groups = std::exchange(saved.parts, {});
    CHECK(on_every_rank(distance(resumed(), mean) < 1e-6));
    if (momentum > 0) continue;
    saved.parts = std::move(groups);
    saved.parts["group-77"] = "of one more group";
    CHECK(on_every_rank(distance(resumed(), mean) < 1e-6));
  }
}

TEST_CASE("groups of unlike sizes are counted alike on all ranks, and resume with the same bits",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() < 4) return;
  const reduce::LocalSpec how{.groups = {0, 0, 0, 1}, .every = 2, .outer_momentum = 0.9f};
  Trainer trainer = ranks.in_groups(how);
  CHECK_THAT(trainer.exchange().note(), Catch::StartsWith("2 groups of 1 to 3 ranks agree"));
  CHECK(resumes_alike(
      ranks, [&] { return ranks.in_groups(how); }, 3));
}

TEST_CASE("groups of another number keep what they agreed on and the outer momentum",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  const reduce::LocalSpec alone{.every = 2, .outer_momentum = 0.9f};
  reduce::LocalSpec together = alone;
  together.groups.assign(ranks.size(), 0);
  Trainer saving = ranks.alone(alone), resumed = ranks.in_groups(together);
  ranks.steps(saving, 0, 3);
  const SavedTrainer saved = save(saving, *ranks.control);
  load(resumed, saved, 3);
  const SavedTrainer again = save(resumed, *ranks.control);
  for (const char* common : {"agreed", "velocity"}) {
    CHECK(saved.parts.at(common) == again.parts.at(common));
    CHECK(saved.parts.at(common).find_first_not_of('\0') != std::string::npos);
  }
  ranks.steps(resumed, 3, 4);  // they agree
  CHECK(on_every_rank(!ranks.differ(resumed)));
}

TEST_CASE("a state of other groups is told; one that does not fit is an error that names keys",
          "[mpi][exchange]") {
  Ranks ranks;
  Trainer trainer = ranks.alone({.every = 2});
  reduce::ExchangeState state, parts;
  const auto told = [&] {
    return reduce::load_state(trainer.exchange(), "local", {state, parts}, "some.h5", 5);
  };
  const auto refuses = [&](const std::string& word) {
    CHECK_THROWS_WITH(told(), Catch::StartsWith("some.h5") && Catch::Contains(word));
  };
  refuses("no number of steps");
  state = {{"steps", "5"}};
  CHECK(told().empty());
  for (std::size_t g = 0; g < ranks.size(); ++g) parts["group-" + std::to_string(g)] = "ab";
  refuses("sync.outer-momentum and optim.ema");
  parts["group-" + std::to_string(ranks.size())] = "ab";
  CHECK_THAT(told(), Catch::EndsWith("begin at their mean (of " + std::to_string(ranks.size() + 1) +
                                     " groups, now " + std::to_string(ranks.size()) + ")"));
  parts["agreed"] = "ab";
  refuses("sync.outer-momentum and optim.ema");
  state["group-0"] = "as it lay in the memory of an older lockstep";
  CHECK_THAT(told(), Catch::StartsWith("each group's own weights, which begin at their mean (saved "
                                       "by an older lockstep"));
}

TEST_CASE("the exact exchange takes over from groups at their mean, and they from it",
          "[mpi][exchange]") {
  Ranks ranks;
  Trainer exact = ranks.exact(), later = ranks.exact();
  ranks.steps(exact, 0, 3);
  const SavedTrainer saved = save(exact, *ranks.control);
  for (const float momentum : {0.0f, 0.9f}) {
    Trainer trainer = ranks.alone({.every = 2, .outer_momentum = momentum});
    for (std::size_t p = 0; p < 3; ++p) copy_part(exact, trainer, saved_parts[p]);
    CHECK(reduce::load_state(trainer.exchange(), "exact", saved.state, "some.h5", 3) ==
          "exchange (exact, now local), with which all ranks begin at their mean");
    CHECK(trainer.exchange().outline().texts.at("steps") == "3");
    ranks.steps(trainer, 3, 4, 0);  // an agreement
    CHECK(on_every_rank(distance(learned_values(trainer, Part::weights),
                                 learned_values(exact, Part::weights)) < 1e-6));
  }
  CHECK(reduce::load_state(later.exchange(), "local", {{{"steps", "3"}}, {{"group-0", "ab"}}},
                           "some.h5", 3) ==
        "exchange (local, now exact), with which all ranks begin at their mean");
}
