#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/optim/rule.hpp"
#include "ports/cpu/parameters.hpp"
#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

// What is computed over the arena, by all lanes: the update, norms, clipping, the average. Backend
// says what each does.

/// The slices [first, last).
struct Slices {
  std::size_t first = 0, last = 0;
};

void update(CpuParameters& parameters, const optim::UpdateRule& rule,
            const optim::StepScalars& scalars, const Slices& which, Team& team);

/// One filter's step by Muon, whose direction is in place of its gradient.
struct FilterStep {
  std::size_t slice = 0;
  float begin = 1;  ///< multiplies the direction before the iterations
  float keep = 1;   ///< multiplies the weights
  float rate = 0;   ///< multiplies the result of the iterations
};
using FilterSteps = std::vector<FilterStep>;
/// w = keep * w - rate * x (optim/muon.hpp), with memory of CpuParameters::room().
void step_filters(CpuParameters& parameters, const FilterSteps& filters, int iterations,
                  Team& team);

/// The sums of squares of these slices, by slice; 0 for all others.
std::vector<double> squares(const CpuParameters& parameters, backend::Part part,
                            const Slices& which, Team& team);
std::vector<double> norms(const CpuParameters& parameters, backend::Part part, Team& team);
void clip_gradients(CpuParameters& parameters, float limit, Team& team);
void update_average(CpuParameters& parameters, float share, Team& team);
void swap_average(CpuParameters& parameters, Team& team);

}  // namespace lockstep::cpu
