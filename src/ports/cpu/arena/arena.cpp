// Why norms have one order of sums. Each slice is cut into pieces of a fixed size, and their sums
// are added in order, in double. So all ranks find the same norm, with any number of threads.

#include "ports/cpu/arena/arena.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/muon.hpp"

namespace lockstep::cpu {

namespace {

/// Floats whose squares one call adds. A fixed number, so that the order of the sums does not
/// depend on the number of lanes.
constexpr std::size_t piece_floats = 16384;

/// A part of one slice.
struct SlicePart {
  std::size_t slice = 0, offset = 0, count = 0;
};

std::vector<SlicePart> cut(const nn::ArenaLayout& layout, const Slices& which) {
  std::vector<SlicePart> pieces;
  for (std::size_t s = which.first; s < which.last; ++s) {
    const nn::Slice& slice = layout.slices[s];
    for (std::size_t done = 0; done < slice.size; done += piece_floats)
      pieces.push_back({s, slice.offset + done, std::min(piece_floats, slice.size - done)});
  }
  return pieces;
}

/// Calls work(first, count) once for each lane's part of the arena's first `floats`, a multiple of
/// 16; so are first and count.
template <class Work>
void each_part(std::size_t floats, Team& team, const Work& work) {
  const std::size_t vectors = floats / 16;
  team.run([&](std::size_t lane) {
    const std::size_t first = vectors * lane / team.lanes() * 16;
    work(first, vectors * (lane + 1) / team.lanes() * 16 - first);
  });
}

}  // namespace

std::vector<double> squares(const CpuParameters& parameters, backend::Part part,
                            const Slices& which, Team& team) {
  const std::vector<SlicePart> pieces = cut(parameters.arena(), which);
  std::vector<double> of_piece(pieces.size()), of_slice(parameters.arena().slices.size());
  team.run([&](std::size_t lane) {
    const std::size_t lanes = team.lanes(), end = pieces.size() * (lane + 1) / lanes;
    for (std::size_t p = pieces.size() * lane / lanes; p < end; ++p)
      of_piece[p] = float_kernels().squares(parameters.at(part, pieces[p].offset), pieces[p].count);
  });
  for (std::size_t p = 0; p < pieces.size(); ++p) of_slice[pieces[p].slice] += of_piece[p];
  return of_slice;
}

std::vector<double> norms(const CpuParameters& parameters, backend::Part part, Team& team) {
  check(part != backend::Part::average || parameters.has_average(), "no average is kept");
  std::vector<double> found =
      squares(parameters, part, {0, parameters.arena().slices.size()}, team);
  for (double& norm : found) norm = std::sqrt(norm);
  return found;
}

std::vector<double> gradient_squares(const CpuParameters& parameters, Team& team) {
  return squares(parameters, backend::Part::gradients, {0, parameters.arena().learned_slices},
                 team);
}

void clip_gradients(CpuParameters& parameters, float limit, double norm, Team& team) {
  const nn::ArenaLayout& layout = parameters.arena();
  parameters.set_clipped_norm(norm);
  const float factor = optim::clip_factor(norm, limit);
  if (factor == 1) return;
  each_part(layout.learned_size, team, [&](std::size_t first, std::size_t count) {
    float_kernels().scale(factor, count, parameters.at(backend::Part::gradients, first));
  });
}

void update_average(CpuParameters& parameters, float share, Team& team) {
  check(parameters.has_average(), "no average is kept");
  each_part(parameters.arena().size, team, [&](std::size_t first, std::size_t count) {
    float_kernels().average(share, count, parameters.at(backend::Part::weights, first),
                            parameters.at(backend::Part::average, first));
  });
}

void swap_average(CpuParameters& parameters, Team& team) {
  check(parameters.has_average(), "no average is kept");
  parameters.weights_changed();
  each_part(parameters.arena().size, team, [&](std::size_t first, std::size_t count) {
    float* weights = parameters.at(backend::Part::weights, first);
    std::swap_ranges(weights, weights + count, parameters.at(backend::Part::average, first));
  });
}

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
