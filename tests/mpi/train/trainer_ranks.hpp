#pragma once

// Trainers of all ranks of the world, and what a checkpoint would hold of them.

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

namespace lockstep::test {

constexpr std::size_t micro_rows = 4;

/// A rank with its part of a global batch.
struct TrainerRanks {
  comm::Control* control = test::make_control(60);
  std::unique_ptr<comm::Communicator> communicator = test::make_communicator(60);
  std::unique_ptr<Backend> backend = make_cpu_backend({});
  std::size_t size() const { return static_cast<std::size_t>(control->world()); }
  std::size_t rank() const { return static_cast<std::size_t>(control->rank()); }
  std::size_t global() const { return micro_rows * size(); }
  /// Groups of one rank.
  std::vector<std::size_t> each_alone() const {
    std::vector<std::size_t> groups(size());
    std::iota(groups.begin(), groups.end(), std::size_t{0});
    return groups;
  }

  train::Trainer make(train::TrainerSpec spec) {
    spec.average = {.decay = 0.9f};
    return train::Trainer(spec, *backend, *communicator);
  }
  train::Trainer exact() { return make(small_trainer(micro_rows)); }
  /// Steps [first, last), each with other rows.
  void steps(train::Trainer& trainer, std::size_t first, std::size_t last, float lr = 0.05f) const {
    for (std::size_t step = first; step < last; ++step) {
      const Rows rows(global() + step);
      trainer.step(rows.batch(step + micro_rows * rank(), micro_rows), global(), lr);
    }
  }
  bool differ(train::Trainer& trainer) const {
    const auto all = control->gather(std::to_string(trainer.parameters().hash()), "hashes");
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& one) { return one != all[0]; });
  }
};

std::vector<float> all_values(train::Trainer& trainer, Part part);

/// What a checkpoint holds, without the file.
struct SavedTrainer {
  reduce::ExchangeState state, parts;
  std::vector<std::vector<float>> tensors[3];
};
constexpr Part saved_parts[] = {Part::weights, Part::momentum, Part::average};

/// As a resume does: rank 0's bytes are what all ranks get. Collective.
SavedTrainer save(train::Trainer& trainer, comm::Control& control);
void load(train::Trainer& trainer, const SavedTrainer& saved, std::uint64_t step);
/// How far `other`, whose ranks have the same weights after each step, is from `exact` after a step
/// that both begin with these weights, and `exact` with the settled momentum and average: the
/// farthest of steps [0, last), of weights, momentum and average. So no rounding grows from step to
/// step or within one: batch norms of few rows make an ulp of the weights 1e-4 of the gradients.
/// Collective.
std::array<double, 3> apart_by_one_step(const TrainerRanks& ranks, train::Trainer& exact,
                                        train::Trainer& other, std::size_t last);
/// Whether k steps + save + k steps are 2k steps on every rank, bit for bit, for the trainer that
/// was saved and for a new one. Collective.
bool resumes_alike(const TrainerRanks& ranks, const std::function<train::Trainer()>& make,
                   std::size_t k);

}  // namespace lockstep::test
