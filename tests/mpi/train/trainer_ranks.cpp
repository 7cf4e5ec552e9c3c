#include "tests/mpi/train/trainer_ranks.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace lockstep::test {
using train::Trainer;

std::vector<float> all_values(Trainer& trainer, Part part) {
  std::vector<float> all, plain;
  const nn::ArenaLayout& layout = trainer.parameters().layout();
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    plain.resize(layout.slices[i].tensor.count());
    trainer.parameters().export_slice(part, i, plain);
    all.insert(all.end(), plain.begin(), plain.end());
  }
  return all;
}

SavedTrainer save(Trainer& trainer, comm::Control& control) {
  const reduce::StateOutline outline = trainer.exchange().outline();
  SavedTrainer saved{outline.texts, {}, {}};
  std::string all;
  std::size_t largest = 0;
  for (const nn::Slice& slice : trainer.parameters().layout().slices)
    largest = std::max(largest, slice.tensor.count() * sizeof(float));
  trainer.exchange().save(control, [&](std::string_view bytes) {
    CHECK(bytes.size() <= largest);  // so no rank holds the state of many
    all += bytes;
  });
  all = control.broadcast(all, "bytes");
  std::size_t at = 0;
  for (const auto& [name, bytes] : outline.parts) {
    saved.parts[name] = all.substr(at, bytes);
    at += bytes;
  }
  CHECK(at == all.size());
  const reduce::Settled settled(trainer.exchange());
  for (std::size_t p = 0; p < 3; ++p)
    for (std::size_t i = 0; i < trainer.parameters().layout().slices.size(); ++i) {
      auto& plain =
          saved.tensors[p].emplace_back(trainer.parameters().layout().slices[i].tensor.count());
      trainer.parameters().export_slice(saved_parts[p], i, plain);
    }
  return saved;
}

void load(Trainer& trainer, const SavedTrainer& saved, std::uint64_t step) {
  for (std::size_t p = 0; p < 3; ++p)
    for (std::size_t i = 0; i < saved.tensors[p].size(); ++i)
      trainer.parameters().import_slice(saved_parts[p], i, saved.tensors[p][i]);
  reduce::load_state(trainer.exchange(), trainer.exchange().name(), {saved.state, saved.parts},
                     "a checkpoint", step);
  trainer.continue_after(step);
}

std::array<double, 3> apart_by_one_step(const TrainerRanks& ranks, Trainer& exact, Trainer& other,
                                        std::size_t last) {
  std::array<double, 3> farthest{};
  for (std::size_t step = 0; step < last; ++step) {
    const SavedTrainer before = save(other, *ranks.control);
    // Not the settled ones: a third of the sum of three equal weights may be another number.
    copy_part(other, exact, Part::weights);
    for (std::size_t p = 1; p < 3; ++p)
      for (std::size_t i = 0; i < before.tensors[p].size(); ++i)
        exact.parameters().import_slice(saved_parts[p], i, before.tensors[p][i]);
    ranks.steps(exact, step, step + 1);
    ranks.steps(other, step, step + 1);
    const reduce::Settled settled(other.exchange());
    for (std::size_t p = 0; p < 3; ++p) {
      const double now =
          distance(all_values(other, saved_parts[p]), all_values(exact, saved_parts[p]));
      farthest[p] = std::isnan(now) ? now : std::max(farthest[p], now);
    }
  }
  return farthest;
}

bool resumes_alike(const TrainerRanks& ranks, const std::function<Trainer()>& make, std::size_t k) {
  Trainer whole = make(), first = make(), second = make();
  ranks.steps(whole, 0, 2 * k);
  ranks.steps(first, 0, k);
  const SavedTrainer saved = save(first, *ranks.control);
  ranks.steps(first, k, 2 * k);
  load(second, saved, k);
  ranks.steps(second, k, 2 * k);
  const std::uint32_t wanted = whole.parameters().hash();
  return on_every_rank(first.parameters().hash() == wanted && second.parameters().hash() == wanted);
}

}  // namespace lockstep::test
