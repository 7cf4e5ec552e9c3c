#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/train/evaluator.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Trainer;

namespace {

/// What each case needs of the world.
struct Ranks {
  comm::Control* control = test::make_control(60);
  std::unique_ptr<comm::Communicator> communicator = test::make_communicator(60);
  std::unique_ptr<Backend> backend = make_cpu_backend({});
  std::size_t size() const { return static_cast<std::size_t>(control->world()); }
  std::size_t rank() const { return static_cast<std::size_t>(control->rank()); }

  /// This rank's part of `global` rows, shared as the sampler shares them.
  data::Batch part(const Rows& rows, std::size_t global) const {
    const std::size_t each = global / size(), more = global % size();
    return rows.batch(each * rank() + std::min(rank(), more), each + (rank() < more ? 1 : 0));
  }
};

bool audit_passes(Trainer& trainer, comm::Control& control) {
  try {
    trainer.audit(control, 1);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("N ranks make the step of one rank that takes their micro-batches one by one",
          "[train]") {
  Ranks ranks;
  struct Form {
    std::size_t global, micro;
  };
  const std::size_t n = ranks.size();
  // Even shares; one smaller than the others; three micro-batches each; a rank without rows.
  std::vector<Form> forms{{4 * n, 4}, {2 * n - 1, 2}, {6 * n, 2}};
  if (n > 1) forms.push_back({n - 1, 1});
  for (const auto [global, micro] : forms) {
    const Rows rows(global);
    Trainer together(small_trainer(micro), *ranks.backend, *ranks.communicator);
    SoloCommunicator nobody;
    Trainer alone(small_trainer(micro), *ranks.backend, nobody);
    for (int step = 0; step < 2; ++step) {
      // So the rounding of a step is not in the next one: batch norms of few rows make 1e-3 of
      // 1e-7.
      for (const Part part : {Part::weights, Part::momentum}) copy_part(together, alone, part);
      together.step(ranks.part(rows, global), global, 0.01f);
      alone.step(rows.batch(0, global), global, 0.01f);
      for (const Part part : {Part::weights, Part::momentum}) {
        const double apart = distance(learned_values(together, part), learned_values(alone, part));
        INFO(global << " rows in micro-batches of " << micro << ", " << apart << " apart");
        REQUIRE(on_every_rank(apart < 1e-6));
      }
    }
  }
}

TEST_CASE("all ranks hold the same bits after uneven steps, also those that had no row",
          "[train]") {
  Ranks ranks;
  Trainer trainer(small_trainer(2), *ranks.backend, *ranks.communicator);
  const std::size_t memory = trainer.memory().activations;
  const Rows rows(5 * ranks.size());
  std::uint64_t counted = 0, expected = 0;
  for (std::size_t global = 1; global <= 5 * ranks.size(); global += 2) {
    const auto report = trainer.step(ranks.part(rows, global), global, 0.05f);
    counted += static_cast<std::uint64_t>(
        ranks.control->sum({static_cast<double>(report.metrics.rows)}, "rows")[0]);
    expected += global;
  }
  REQUIRE(on_every_rank(counted == expected));
  REQUIRE(on_every_rank(trainer.memory().activations == memory));  // shared with the odd sizes'
  REQUIRE(on_every_rank(audit_passes(trainer, *ranks.control)));
  const auto weights = learned_values(trainer, Part::weights);
  REQUIRE(on_every_rank(
      std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); })));
}

TEST_CASE("norms, clipped gradients, LARS and the average have the same bits on all ranks",
          "[train]") {
  Ranks ranks;
  train::TrainerSpec spec = small_trainer(2);
  spec.formula = optim::Lars{.momentum = 0.9f, .nesterov = true, .coefficient = 0.01f};
  spec.clip_norm = 0.25f;
  spec.average = {.decay = 0.9};
  Trainer trainer(spec, *ranks.backend, *ranks.communicator);
  const Rows rows(5 * ranks.size());
  double norm = 0;
  for (int step = 0; step < 3; ++step)
    norm = trainer.step(ranks.part(rows, rows.targets.size()), rows.targets.size(), 0.05f)
               .gradient_norm.value();
  REQUIRE(on_every_rank(norm > spec.clip_norm));
  std::vector<double> mine = ranks.backend->norms(trainer.parameters(), Part::gradients);
  mine.push_back(norm);
  for (const Part part : {Part::weights, Part::average})
    for (const double found : ranks.backend->norms(trainer.parameters(), part))
      mine.push_back(found);
  std::vector<double> negative = mine;
  for (double& found : negative) found = -found;
  const auto most = ranks.control->max(mine, "largest"),
             least = ranks.control->max(negative, "least");
  for (std::size_t i = 0; i < mine.size(); ++i) REQUIRE(on_every_rank(most[i] == -least[i]));
  REQUIRE(on_every_rank(audit_passes(trainer, *ranks.control)));
  REQUIRE(on_every_rank(learned_values(trainer, Part::average) !=
                        learned_values(trainer, Part::weights)));
  if (ranks.size() < 2) return;
  if (ranks.rank() == 1) {
    std::vector<float> plain(trainer.parameters().layout().slices[0].tensor.count(), 1);
    trainer.parameters().import_slice(Part::average, 0, plain);
  }
  REQUIRE(on_every_rank(!audit_passes(trainer, *ranks.control)));
}

TEST_CASE("the audit says at which step ranks diverged, and which", "[train]") {
  Ranks ranks;
  Trainer trainer(small_trainer(2), *ranks.backend, *ranks.communicator);
  REQUIRE(on_every_rank(audit_passes(trainer, *ranks.control)));
  if (ranks.size() < 2) return;
  const std::size_t odd = ranks.size() - 1;
  if (ranks.rank() == odd) {
    std::vector<float> bias(class_count, 0.25f);
    const nn::ArenaLayout& layout = trainer.parameters().layout();
    for (std::size_t i = 0; i < layout.slices.size(); ++i)
      if (layout.slices[i].tensor.name == "fc.bias")
        trainer.parameters().import_slice(Part::weights, i, bias);
  }
  std::string message;
  try {
    trainer.audit(*ranks.control, 42);
  } catch (const Error& error) {
    message = error.what();
  }
  INFO(message);
  REQUIRE(on_every_rank(message.find("ranks diverged at step 42") != std::string::npos));
  REQUIRE(
      on_every_rank(message.find("; the weights of fc.bias differ in norm") != std::string::npos));
  if (ranks.size() > 2)  // with two, none is known to be right: both are named
    REQUIRE(on_every_rank(message.find(" on rank " + std::to_string(odd)) != std::string::npos));
}

TEST_CASE("evaluation counts every row once, for any ranks, batch and uneven end", "[train]") {
  Ranks ranks;
  constexpr std::size_t count = 37;
  const SharedShard shard(*ranks.control, count);
  const data::DataSet set(shard.path());
  Trainer trainer(small_trainer(2), *ranks.backend, *ranks.communicator);

  train::EvaluatorSpec spec;
  spec.network = trainer.network();
  spec.program = trainer.program_spec();
  spec.program.batch = count;
  comm::LoneControl nobody;
  const auto want =
      train::Evaluator(spec, *ranks.backend, trainer.parameters(), nobody, set).evaluate(true);
  REQUIRE(on_every_rank(want.rows == count));
  spec.replicas = all_replicas(*ranks.control).replicas;
  for (const std::size_t batch : {1, 3, 16}) {
    spec.program.batch = batch;
    train::Evaluator evaluator(spec, *ranks.backend, trainer.parameters(), *ranks.control, set);
    const auto got = evaluator.evaluate(true);
    REQUIRE(on_every_rank(got.rows == count));
    REQUIRE(on_every_rank(ranks.control->rank() != 0 || got.confusion == want.confusion));
    REQUIRE(on_every_rank(got.mean.top1 == want.mean.top1 && got.mean.top5 == want.mean.top5));
    REQUIRE(on_every_rank(std::abs(got.mean.loss - want.mean.loss) <= 1e-5 * want.mean.loss));
    REQUIRE(
        on_every_rank(ranks.control->rank() != 0 || (got.rows_of(7) == 4 && got.rows_of(3) == 3)));
    REQUIRE(on_every_rank(evaluator.evaluate().mean.loss == got.mean.loss));
  }
}
