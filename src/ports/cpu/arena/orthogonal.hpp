#pragma once

#include <cstddef>
#include <vector>

#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

/// A matrix that is at least as wide as high, its rows one after the other, and memory to compute
/// with.
struct WideMatrix {
  std::size_t height = 0, width = 0;
  float* values = nullptr;   ///< [height, width]
  float* next = nullptr;     ///< as large
  float* squares = nullptr;  ///< [4, height, height]
};

/// Muon's iterations (optim/muon.hpp) of all these matrices, whose norms are at most 1. `values`
/// then is the result; it may have changed places with `next`. The bits are the same with any
/// number of lanes, and for a matrix in any company.
void orthogonalise(std::vector<WideMatrix>& matrices, int iterations, Team& team);

}  // namespace lockstep::cpu
