#include <cmath>
#include <variant>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cpu/arena/arena.hpp"

namespace lockstep::cpu {

namespace {

struct Task {
  const CpuParameters& parameters;
  const optim::UpdateRule& rule;
  float lr;
  const Slices& which;
  Team& team;
};

float rate_of(const Task& task, std::size_t slice) {
  return task.rule.rate.empty() ? task.lr : task.lr * task.rule.rate.at(slice);
}

/// A formula as a kernel, and what this needs of each slice of the task.
struct Prepared {
  decltype(FloatKernels::sgd) kernel;
  std::vector<SgdUpdate> slices;
};

Prepared prepare(const optim::Sgd& sgd, const Task& task) {
  Prepared all{float_kernels().sgd, {}};
  for (std::size_t s = task.which.first; s < task.which.last; ++s)
    all.slices.push_back({.lr = rate_of(task, s),
                          .momentum = sgd.momentum,
                          .weight_decay = task.rule.weight_decay[s],
                          .nesterov = sgd.nesterov});
  return all;
}

Prepared prepare(const optim::Lars& lars, const Task& task) {
  const auto weights = squares(task.parameters, backend::Part::weights, task.which, task.team);
  const auto gradients = squares(task.parameters, backend::Part::gradients, task.which, task.team);
  Prepared all{float_kernels().lars, {}};
  for (std::size_t s = task.which.first; s < task.which.last; ++s) {
    const float decay = task.rule.weight_decay[s];
    const float trust = backend::arithmetic::trust_ratio(
        lars.coefficient, lars.epsilon, decay, std::sqrt(weights[s]), std::sqrt(gradients[s]));
    const float lr = rate_of(task, s);
    all.slices.push_back({.lr = task.rule.adaptive.at(s) != 0 ? lr * trust : lr,
                          .momentum = lars.momentum,
                          .weight_decay = decay,
                          .nesterov = lars.nesterov});
  }
  return all;
}

}  // namespace

void update(CpuParameters& parameters, const optim::UpdateRule& rule,
            const optim::StepScalars& scalars, const Slices& which, Team& team) {
  const std::vector<nn::Slice>& slices = parameters.layout().slices;
  check(which.last <= parameters.layout().learned_slices,
        "only learned slices are updated by gradients");
  parameters.weights_changed();
  const Task task{parameters, rule, scalars.lr, which, team};
  const Prepared prepared =
      std::visit([&task](const auto& formula) { return prepare(formula, task); }, rule.formula);
  team.run([&](std::size_t lane) {
    for (std::size_t s = which.first; s < which.last; ++s) {
      const std::size_t vectors = (slices[s].size + 15) / 16, lanes = team.lanes();
      const std::size_t begin = vectors * lane / lanes * 16,
                        end = vectors * (lane + 1) / lanes * 16;
      const std::size_t at = slices[s].offset + begin;
      prepared.kernel(prepared.slices[s - which.first], end - begin,
                      parameters.at(backend::Part::gradients, at),
                      parameters.at(backend::Part::weights, at),
                      parameters.at(backend::Part::momentum, at));
    }
  });
}

}  // namespace lockstep::cpu
