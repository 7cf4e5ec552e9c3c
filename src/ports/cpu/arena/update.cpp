#include <cmath>
#include <variant>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/muon.hpp"
#include "ports/cpu/arena/arena.hpp"

namespace lockstep::cpu {

namespace {

using backend::Part;

struct Task {
  CpuParameters& parameters;
  const optim::UpdateRule& rule;
  const optim::StepScalars& scalars;
  const Slices& which;
  Team& team;
};

float rate_of(const Task& task, std::size_t slice) {
  const float lr = task.scalars.lr;
  return task.rule.rate.empty() ? lr : lr * task.rule.rate.at(slice);
}

/// Keeps a slice's trust ratio for the step's figures, and returns it: 1 if it is not adaptive.
float trusted(const Task& task, std::size_t slice, float ratio) {
  const bool adapts = task.rule.adaptive.at(slice) != 0;
  task.parameters.set_trust(slice, adapts ? ratio : 0);
  return adapts ? ratio : 1;
}

/// Calls work(slice, first, count) for each lane's part of each slice.
template <class Work>
void each_part_of_slices(const Task& task, const Work& work) {
  const std::vector<nn::Slice>& slices = task.parameters.arena().slices;
  task.team.run([&](std::size_t lane) {
    for (std::size_t s = task.which.first; s < task.which.last; ++s) {
      const std::size_t vectors = (slices[s].size + 15) / 16, lanes = task.team.lanes();
      const std::size_t begin = vectors * lane / lanes * 16,
                        end = vectors * (lane + 1) / lanes * 16;
      work(s, slices[s].offset + begin, end - begin);
    }
  });
}

/// `updates`: of each slice of the task.
void run(decltype(FloatKernels::sgd) kernel, const std::vector<SgdUpdate>& updates,
         const Task& task) {
  each_part_of_slices(task, [&](std::size_t s, std::size_t at, std::size_t count) {
    kernel(updates[s - task.which.first], count, task.parameters.at(Part::gradients, at),
           task.parameters.at(Part::weights, at), task.parameters.at(Part::momentum, at));
  });
}

SgdUpdate sgd_of(const optim::Sgd& sgd, const Task& task, std::size_t slice) {
  return {.lr = rate_of(task, slice),
          .momentum = sgd.momentum,
          .weight_decay = task.rule.weight_decay[slice],
          .nesterov = sgd.nesterov};
}

void apply(const optim::Sgd& sgd, const Task& task) {
  std::vector<SgdUpdate> updates;
  for (std::size_t s = task.which.first; s < task.which.last; ++s)
    updates.push_back(sgd_of(sgd, task, s));
  run(float_kernels().sgd, updates, task);
}

void apply(const optim::Lars& lars, const Task& task) {
  const auto weights = squares(task.parameters, Part::weights, task.which, task.team);
  const auto gradients = squares(task.parameters, Part::gradients, task.which, task.team);
  std::vector<SgdUpdate> updates;
  for (std::size_t s = task.which.first; s < task.which.last; ++s) {
    const float decay = task.rule.weight_decay[s];
    const float trust = optim::trust_ratio(lars.coefficient, lars.epsilon, decay,
                                           std::sqrt(weights[s]), std::sqrt(gradients[s]));
    const auto factors = optim::lars_factors(lars.form, task.rule.adaptive.at(s) != 0,
                                             rate_of(task, s), trusted(task, s, trust));
    updates.push_back({.lr = factors.lr,
                       .momentum = lars.momentum,
                       .weight_decay = decay,
                       .nesterov = lars.nesterov,
                       .outer = factors.outer});
  }
  run(float_kernels().lars, updates, task);
}

/// The steps take the gradients' place, and their norms are those of the trust ratios.
void apply(const optim::Lamb& lamb, const Task& task) {
  check(task.parameters.has_second_moments(), "LAMB needs second moments");
  const auto parts = [&task](Part part, std::size_t at) { return task.parameters.at(part, at); };
  const std::uint64_t step = task.scalars.steps_done + 1;
  LambUpdate update{.beta1 = lamb.momentum,
                    .beta2 = lamb.beta2,
                    .epsilon = lamb.epsilon,
                    .weight_decay = 0,
                    .scale1 = optim::lamb_scale(lamb.momentum, step),
                    .scale2 = optim::lamb_scale(lamb.beta2, step)};
  each_part_of_slices(task, [&](std::size_t s, std::size_t at, std::size_t count) {
    LambUpdate of_slice = update;
    of_slice.weight_decay = task.rule.weight_decay[s];
    float_kernels().lamb(of_slice, count, parts(Part::gradients, at), parts(Part::weights, at),
                         parts(Part::momentum, at), parts(Part::second_moments, at));
  });
  const auto weights = squares(task.parameters, Part::weights, task.which, task.team);
  const auto steps = squares(task.parameters, Part::gradients, task.which, task.team);
  std::vector<float> rates;
  for (std::size_t s = task.which.first; s < task.which.last; ++s) {
    const float ratio = optim::lamb_trust(std::sqrt(weights[s]), std::sqrt(steps[s]));
    rates.push_back(rate_of(task, s) * trusted(task, s, ratio));
  }
  each_part_of_slices(task, [&](std::size_t s, std::size_t at, std::size_t count) {
    vector_kernels().add(-rates[s - task.which.first], parts(Part::gradients, at), count,
                         parts(Part::weights, at));
  });
}

/// The directions take the gradients' place.
void apply(const optim::Muon& muon, const Task& task) {
  const optim::Sgd rest{.momentum = muon.rest_momentum, .nesterov = muon.nesterov};
  const auto parts = [&task](Part part, std::size_t at) { return task.parameters.at(part, at); };
  each_part_of_slices(task, [&](std::size_t s, std::size_t at, std::size_t count) {
    if (task.rule.adaptive.at(s) != 0)
      float_kernels().direction(muon.momentum, muon.nesterov, count, parts(Part::gradients, at),
                                parts(Part::momentum, at));
    else
      float_kernels().sgd(sgd_of(rest, task, s), count, parts(Part::gradients, at),
                          parts(Part::weights, at), parts(Part::momentum, at));
  });
  const auto weights = squares(task.parameters, Part::weights, task.which, task.team);
  const auto directions = squares(task.parameters, Part::gradients, task.which, task.team);
  FilterSteps filters;
  for (std::size_t s = task.which.first; s < task.which.last; ++s) {
    if (task.rule.adaptive.at(s) == 0) continue;
    const std::size_t outputs = task.parameters.arena().slices[s].tensor.shape.front();
    filters.push_back({.slice = s,
                       .begin = optim::muon_begin(std::sqrt(directions[s])),
                       .keep = optim::muon_keep(outputs, std::sqrt(weights[s])),
                       .rate = rate_of(task, s)});
  }
  step_filters(task.parameters, filters, muon.iterations, task.team);
}

}  // namespace

void update(CpuParameters& parameters, const optim::UpdateRule& rule,
            const optim::StepScalars& scalars, const Slices& which, Team& team) {
  check(which.last <= parameters.arena().learned_slices,
        "only learned slices are updated by gradients");
  parameters.weights_changed();
  const Task task{parameters, rule, scalars, which, team};
  std::visit([&task](const auto& formula) { apply(formula, task); }, rule.formula);
}

}  // namespace lockstep::cpu
