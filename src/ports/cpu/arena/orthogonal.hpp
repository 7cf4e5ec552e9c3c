#pragma once

#include <cstddef>
#include <vector>

#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

/// A matrix that is at least as wide as high, and memory to compute with. Sides are multiples of
/// 16: `width` and `height` are rounded up, and the numbers that this adds are zeros. It is stored
/// as panels of 16 of its rows, in which those of a column lie next to each other.
struct WideMatrix {
  std::size_t height = 0, width = 0;
  float* values = nullptr;   ///< [height / 16, width, 16]
  float* next = nullptr;     ///< as large
  float* squares = nullptr;  ///< [4, height / 16, height, 16]
  std::size_t at(std::size_t row, std::size_t column) const {
    return (row / 16 * width + column) * 16 + row % 16;
  }
};
/// A side of a matrix, rounded up.
constexpr std::size_t whole_panels(std::size_t side) { return (side + 15) / 16 * 16; }

/// Muon's iterations (optim/muon.hpp) of all these matrices, whose norms are at most 1. `values`
/// then is the result; it may have changed places with `next`. The bits are the same with any
/// number of lanes, and for a matrix in any company.
void orthogonalise(std::vector<WideMatrix>& matrices, int iterations, Team& team);

}  // namespace lockstep::cpu
