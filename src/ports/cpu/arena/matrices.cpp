// Products of matrices with thin ones, and the orthogonal vectors of these.
#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "ports/cpu/arena/vectors.hpp"
#include "ports/cpu/kernels/kernels.hpp"

namespace lockstep::cpu {

namespace {

using backend::Matrix;
using backend::Thin;

constexpr std::size_t share_of_lanes = 16;

/// What lies next to each other in memory: rows of a panel, or a row's columns.
bool rows_are_lanes(const nn::MatrixForm& form) { return form.panel > 1; }

LaneGrid grid_of(const nn::MatrixForm& form) {
  if (rows_are_lanes(form))
    return {form.rows, form.panel, form.panel_stride, form.columns, form.column_stride};
  check(form.column_stride == 1, "a matrix whose numbers do not lie next to each other");
  return {form.columns, form.columns, 0, form.rows, form.panel_stride};
}

/// Calls work(first, last) for parts of [0, count), the same for any number of lanes.
template <class Work>
void share_out(std::size_t count, Team& team, const Work& work) {
  const std::size_t parts = (count + share_of_lanes - 1) / share_of_lanes;
  team.run([&](std::size_t lane) {
    const std::size_t end = parts * (lane + 1) / team.lanes();
    for (std::size_t p = parts * lane / team.lanes(); p < end; ++p)
      work(p * share_of_lanes, std::min(count, (p + 1) * share_of_lanes));
  });
}

/// product = matrix' or matrix x thin: sums over lanes or over steps.
void put_product(const Matrix& matrix, bool over_lanes, const Thin& by, const Thin& product,
                 Team& team) {
  const LaneGrid grid = grid_of(matrix.form);
  const ThinKernels& kernels = thin_kernels(by.width);
  const auto sum = over_lanes ? kernels.sum_lanes : kernels.sum_steps;
  share_out(product.length, team, [&](std::size_t first, std::size_t last) {
    sum(grid, matrix.data, by.data, first, last, product.data);
  });
}

double dot(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Takes from vector k what it has of those before it, twice: the first time leaves what rounding
/// adds. Returns its length.
double project_out(const Thin& vectors, std::size_t k) {
  float* mine = vectors.data + k * vectors.length;
  for (int time = 0; time < 2; ++time)
    for (std::size_t j = 0; j < k; ++j) {
      const float* other = vectors.data + j * vectors.length;
      const auto share = static_cast<float>(dot(mine, other, vectors.length));
      for (std::size_t i = 0; i < vectors.length; ++i) mine[i] -= share * other[i];
    }
  return std::sqrt(dot(mine, mine, vectors.length));
}

}  // namespace

void CpuVectors::multiply(const Matrix& matrix, const Thin& columns, const Thin& product) {
  check_product(matrix, product, columns, "multiply");
  put_product(matrix, !rows_are_lanes(matrix.form), columns, product, team_);
}

void CpuVectors::multiply_transposed(const Matrix& matrix, const Thin& rows, const Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
  put_product(matrix, rows_are_lanes(matrix.form), rows, product, team_);
}

void CpuVectors::add_product(float keep, float factor, const Thin& rows, const Thin& columns,
                             const Matrix& to) {
  check_product(to, rows, columns, "add_product");
  const LaneGrid grid = grid_of(to.form);
  const bool by_rows = rows_are_lanes(to.form);
  const Thin &lanes = by_rows ? rows : columns, &steps = by_rows ? columns : rows;
  share_out(grid.lanes, team_, [&](std::size_t first, std::size_t last) {
    thin_kernels(rows.width)
        .add_outer(grid, keep, factor, lanes.data, steps.data, first, last, to.data);
  });
}

void CpuVectors::orthogonalise(const Thin& vectors) {
  check_thin(vectors, "orthogonalise");
  for (std::size_t k = 0; k < vectors.width; ++k) {
    float* mine = vectors.data + k * vectors.length;
    const double before = std::sqrt(dot(mine, mine, vectors.length));
    double length = project_out(vectors, k);
    if (length <= backend::arithmetic::dependent_share * before) {
      for (std::size_t i = 0; i < vectors.length; ++i)
        mine[i] = backend::arithmetic::stand_in(k, i);
      length = project_out(vectors, k);
    }
    const float factor = k < vectors.length ? static_cast<float>(1 / length) : 0;
    for (std::size_t i = 0; i < vectors.length; ++i) mine[i] *= factor;
  }
}

}  // namespace lockstep::cpu
