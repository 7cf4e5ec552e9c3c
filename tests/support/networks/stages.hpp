#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"
#include "tests/support/networks/sketch.hpp"

namespace lockstep::test {

/// Of each tensor, by its name.
using Tensors = std::map<std::string, std::vector<float>>;

/// The precisions that this machine's CPU has.
inline std::vector<backend::Precision> cpu_formats() {
  using enum backend::Precision;
  try {
    backend::make_cpu_backend({})->make_parameters(plain(), bf16);
  } catch (const InputError&) {
    return {fp32};
  }
  return {fp32, bf16};
}

/// The loss and the gradients of two micro-batches through compiled stages, one after the other in
/// each stage. A Stage has a `program` of two slots and of `rows` rows, run(tape) and gradients();
/// carry(from, values, to, place) takes values or gradients from one stage to its neighbour.
template <typename Stage, typename Carry>
std::pair<double, Tensors> through(std::vector<Stage>& stages, const Case& c, std::size_t rows,
                                   const Carry& carry) {
  const std::size_t values = rows * c.network.input.count();
  const std::vector<float> images(c.images.begin(), c.images.end());
  for (const std::size_t part : {0u, 1u}) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      backend::Program& program = *stages[s].program;
      program.select(part);
      program.set_scalars({.lr = 0, .gradient_scale = 0.125f, .statistics_share = 0.5f});
      const bool is_first = s == 0, is_last = s + 1 == stages.size();
      program.load_normalised({images.data() + part * values, is_first ? values : 0},
                              {c.targets.data() + part * rows, is_last ? rows : std::size_t{0}});
      if (!is_first) {
        stages[s - 1].program->select(part);
        carry(stages[s - 1], stages[s - 1].program->sent().values, stages[s],
              program.received().values);
      }
      stages[s].run(program.forward());
    }
  }
  for (const bool part : {false, true}) {
    for (std::size_t s = stages.size(); s-- > 0;) {
      backend::Program& program = *stages[s].program;
      for (const Stage& stage : stages) stage.program->select(part);
      if (s + 1 < stages.size())
        carry(stages[s + 1], stages[s + 1].program->received().gradients, stages[s],
              program.sent().gradients);
      stages[s].run(program.backward(part));
    }
  }
  std::pair<double, Tensors> result;
  for (const Stage& stage : stages) {
    result.first += stage.program->take_metrics().loss;
    Tensors its = stage.gradients();
    result.second.merge(its);
    CHECK(its.empty());  // each tensor is in one stage
  }
  return result;
}

}  // namespace lockstep::test
