#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/nn/arena.hpp"
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
  constexpr std::size_t at(std::size_t row, std::size_t column) const {
    return (row / 16 * width + column) * 16 + row % 16;
  }
};
/// A side of a matrix, rounded up.
constexpr std::size_t whole_panels(std::size_t side) { return (side + 15) / 16 * 16; }

/// Numbers of a filter that lie next to each other in its slice, from number `from` on, and where
/// the matrix has them.
struct Run {
  std::size_t from, count, to, stride;
};
/// How many rows of a column are one run from this row on: a panel of the slice may have more rows
/// than one of the matrix.
constexpr std::size_t next_run(const nn::MatrixForm& form, std::size_t row) {
  return std::min({form.rows - row, form.panel - row % form.panel, 16 - row % 16});
}
constexpr Run run_at(const nn::MatrixForm& form, const WideMatrix& matrix, std::size_t row,
                     std::size_t column) {
  const bool upright = form.rows <= form.columns;
  return {.from = form.at(row, column),
          .count = next_run(form, row),
          .to = upright ? matrix.at(row, column) : matrix.at(column, row),
          .stride = upright ? 1u : 16u};
}

/// Muon's iterations (optim/muon.hpp) of all these matrices, whose norms are at most 1. `values`
/// then is the result; it may have changed places with `next`. The bits are the same with any
/// number of lanes, and for a matrix in any company.
void orthogonalise(std::vector<WideMatrix>& matrices, int iterations, Team& team);

}  // namespace lockstep::cpu
