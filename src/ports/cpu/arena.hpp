#pragma once

#include <cstddef>
#include <vector>

#include "ports/cpu/parameters.hpp"
#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

// What is computed over the whole arena, by all lanes: norms, clipping, the average. Backend says
// what each does.

std::vector<double> norms(const CpuParameters& parameters, backend::Part part, Team& team);
void clip_gradients(CpuParameters& parameters, float limit, Team& team);
void update_average(CpuParameters& parameters, float share, Team& team);
void swap_average(CpuParameters& parameters, Team& team);

}  // namespace lockstep::cpu
