// Trainings whose gradients travel in fewer bits.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
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
  Trainer trainer(ExchangeKind kind, std::size_t bucket_bytes = 0) {
    train::TrainerSpec spec = small_trainer(micro_rows);
    if (bucket_bytes > 0) spec.bucket_bytes = bucket_bytes;
    spec.exchange = kind;
    spec.power_sgd = {.rank = 2, .from_step = 2};
    return make(spec);
  }
  std::vector<ExchangeKind> narrow() const {
    std::vector<ExchangeKind> kinds{ExchangeKind::bf16, ExchangeKind::fp16};
    if (size() > 1) kinds.push_back(ExchangeKind::int8);
    return kinds;
  }
};

}  // namespace

TEST_CASE(
    "with narrow gradients a step is near that of the exact exchange, and ranks keep the same bits",
    "[mpi][exchange]") {
  Ranks ranks;
  Trainer exact = ranks.trainer(ExchangeKind::exact);
  ranks.steps(exact, 0, 1);
  for (const ExchangeKind kind : ranks.narrow()) {
    Trainer trainer = ranks.trainer(kind);
    REQUIRE(trainer.exchange().buckets().size() > 4);
    ranks.steps(trainer, 0, 1);
    const double off =
        distance(learned_values(trainer, Part::momentum), learned_values(exact, Part::momentum));
    INFO(choice_name(kind) << ": " << off);
    const double most = kind == ExchangeKind::bf16   ? 1.0 / 256
                        : kind == ExchangeKind::fp16 ? 1.0 / 2048
                                                     : 0.05;
    CHECK(on_every_rank(off < most && (off > 0) == (ranks.size() > 1)));
    ranks.steps(trainer, 1, 6);
    CHECK(on_every_rank(!ranks.differ(trainer)));
  }
}

TEST_CASE("k steps + save + k steps = 2k steps with narrow gradients, bit for bit",
          "[mpi][exchange]") {
  Ranks ranks;
  for (const ExchangeKind kind : ranks.narrow()) {
    INFO(choice_name(kind));
    CHECK(resumes_alike(
        ranks, [&] { return ranks.trainer(kind); }, 3));
  }
}

TEST_CASE("PowerSGD has the exact bits before its first step, then the same ones on all ranks",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  Trainer exact = ranks.exact(), trainer = ranks.trainer(ExchangeKind::power_sgd);
  ranks.steps(exact, 0, 2);
  ranks.steps(trainer, 0, 2);
  CHECK(on_every_rank(trainer.parameters().hash() == exact.parameters().hash()));
  ranks.steps(exact, 2, 6);
  ranks.steps(trainer, 2, 6);
  CHECK(on_every_rank(trainer.parameters().hash() != exact.parameters().hash()));
  CHECK(on_every_rank(!ranks.differ(trainer)));
}

TEST_CASE("k steps + save + k steps = 2k steps with PowerSGD, before its first step and after it",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  for (const std::size_t k : {1, 2, 4})
    CHECK(resumes_alike(
        ranks, [&] { return ranks.trainer(ExchangeKind::power_sgd); }, k));
}

TEST_CASE("PowerSGD's errors of other ranks are left out by name; another network is an error",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  Trainer trainer = ranks.trainer(ExchangeKind::power_sgd);
  reduce::ExchangeState state, parts;
  const auto refuses = [&](const std::string& word) {
    CHECK_THROWS_WITH(
        reduce::load_state(trainer.exchange(), "power-sgd", {state, parts}, "some.h5", 5),
        Catch::StartsWith("some.h5") && Catch::Contains(word));
  };
  refuses("no number of steps");
  state = {{"steps", "5"}};  // of a run that warmed up longer
  CHECK(reduce::load_state(trainer.exchange(), "power-sgd", state, "some.h5", 5).empty());
  parts["columns"] = "ab";
  for (std::size_t r = 0; r < ranks.size(); ++r) parts["rank-" + std::to_string(r)] = "ab";
  refuses("comm.power-sgd");
}

TEST_CASE("int8's errors of other ranks are left out by name; another network is an error",
          "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  Trainer trainer = ranks.trainer(ExchangeKind::int8);
  ranks.steps(trainer, 0, 3);
  SavedTrainer saved = save(trainer, *ranks.control);
  const auto told = [&] {
    return reduce::load_state(trainer.exchange(), "int8", {saved.state, saved.parts}, "some.h5", 3);
  };
  CHECK(told().empty());
  saved.parts["rank-77"] = "ab";
  CHECK_THAT(told(),
             Catch::EndsWith(fmt::format("(of {} ranks, now {})", ranks.size() + 1, ranks.size())));
  saved.parts.erase("rank-77");
  saved.parts["rank-" + std::to_string(ranks.rank())] = "ab";
  CHECK_THROWS_WITH(told(), Catch::StartsWith("some.h5: ") && Catch::Contains("another network"));
  const reduce::ExchangeState older{{"buckets", "9 "}, {"rank-0", "ab"}};
  CHECK_THAT(reduce::load_state(trainer.exchange(), "int8", older, "some.h5", 3),
             Catch::StartsWith("what int8 had left out (saved by an older lockstep"));
}

TEST_CASE("what int8 and PowerSGD left out is the same in other buckets", "[mpi][exchange]") {
  Ranks ranks;
  if (ranks.size() == 1) return;
  for (const ExchangeKind kind : {ExchangeKind::int8, ExchangeKind::power_sgd}) {
    Trainer trainer = ranks.trainer(kind), other = ranks.trainer(kind, 1 << 20);
    REQUIRE(other.exchange().buckets().size() < trainer.exchange().buckets().size());
    ranks.steps(trainer, 0, 4);
    const SavedTrainer saved = save(trainer, *ranks.control);
    load(other, saved, 4);
    CHECK(on_every_rank(save(other, *ranks.control).parts == saved.parts));
  }
}
