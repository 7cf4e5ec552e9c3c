#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/nn/arena.hpp"
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
std::vector<double> gradient_squares(const CpuParameters& parameters, Team& team);
/// `norm`: of all gradients, also those that other parameters have.
void clip_gradients(CpuParameters& parameters, float limit, double norm, Team& team);
void update_average(CpuParameters& parameters, float share, Team& team);
void swap_average(CpuParameters& parameters, Team& team);

/// By all lanes, block by block, so that values of other formats are floats in a core's cache only.
class CpuVectors final : public backend::Vectors {
 public:
  explicit CpuVectors(Team& team) : team_(team) {}
  backend::DeviceMemory allocate(std::size_t bytes, const std::string& what) override;
  void read(const void* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, void* to) override;
  void cast(const backend::Vector& from, const backend::Vector& to) override;
  void add(float factor, const backend::Vector& from, const backend::Vector& to) override;
  void scale(float factor, const backend::Vector& values) override;
  void largest(const backend::Vector& values, float* found) override;
  void multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                const backend::Thin& product) override;
  void multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                           const backend::Thin& product) override;
  void add_product(float keep, float factor, const backend::Thin& rows,
                   const backend::Thin& columns, const backend::Matrix& to) override;
  void orthogonalise(const backend::Thin& vectors) override;

 private:
  Team& team_;
};

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
