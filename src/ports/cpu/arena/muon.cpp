#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cpu/arena/arena.hpp"
#include "ports/cpu/arena/orthogonal.hpp"

// A filter's values lie in the arena as oneDNN wants them. Its matrix may have its columns in any
// order, because the result then has them in the same one.
namespace lockstep::cpu {

namespace {

using backend::Part;

/// Columns of a filter that one lane takes at a time.
constexpr std::size_t columns_at_once = 64;

struct Piece {
  std::size_t filter, first, last;  ///< columns [first, last)
};

std::vector<Piece> cut_columns(const CpuParameters& parameters, const FilterSteps& filters) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < filters.size(); ++i) {
    const std::size_t columns = parameters.layout().slices[filters[i].slice].form.columns;
    for (std::size_t c = 0; c < columns; c += columns_at_once)
      pieces.push_back({i, c, std::min(columns, c + columns_at_once)});
  }
  return pieces;
}

/// Calls work(filter, number in the slice, number in the matrix) for each value.
template <class Work>
void each_value(const CpuParameters& parameters, const FilterSteps& filters, Team& team,
                const Work& work) {
  const std::vector<Piece> pieces = cut_columns(parameters, filters);
  team.run([&](std::size_t lane) {
    const std::size_t end = pieces.size() * (lane + 1) / team.lanes();
    for (std::size_t i = pieces.size() * lane / team.lanes(); i < end; ++i) {
      const Piece& piece = pieces[i];
      const nn::MatrixForm& form = parameters.layout().slices[filters[piece.filter].slice].form;
      const bool upright = form.rows <= form.columns;
      const std::size_t by_row = upright ? form.columns : 1, by_column = upright ? 1 : form.rows;
      for (std::size_t row = 0; row < form.rows; row += form.panel)
        for (std::size_t c = piece.first; c < piece.last; ++c) {
          const std::size_t from = row / form.panel * form.panel_stride + c * form.column_stride,
                            to = row * by_row + c * by_column;
          for (std::size_t k = 0; k < form.panel; ++k)
            work(piece.filter, from + k, to + k * by_row);
        }
    }
  });
}

void step_together(CpuParameters& parameters, const FilterSteps& filters, int iterations,
                   Team& team) {
  const std::vector<nn::Slice>& slices = parameters.layout().slices;
  std::size_t floats = 0;
  for (const FilterStep& filter : filters)
    floats += optim::muon_room(slices[filter.slice].form.rows, slices[filter.slice].form.columns);
  float* room = parameters.room(floats);
  std::vector<WideMatrix> matrices;
  std::vector<const float*> steps;
  std::vector<float*> weights;
  for (const FilterStep& filter : filters) {
    const nn::Slice& slice = slices[filter.slice];
    const std::size_t count = slice.form.rows * slice.form.columns;
    matrices.push_back({.height = std::min(slice.form.rows, slice.form.columns),
                        .width = std::max(slice.form.rows, slice.form.columns),
                        .values = room,
                        .next = room + count,
                        .squares = room + 2 * count});
    room += optim::muon_room(slice.form.rows, slice.form.columns);
    steps.push_back(parameters.at(Part::gradients, slice.offset));
    weights.push_back(parameters.at(Part::weights, slice.offset));
  }
  each_value(parameters, filters, team, [&](std::size_t i, std::size_t from, std::size_t to) {
    matrices[i].values[to] = filters[i].begin * steps[i][from];
  });
  orthogonalise(matrices, iterations, team);
  each_value(parameters, filters, team, [&](std::size_t i, std::size_t at, std::size_t from) {
    float& weight = weights[i][at];
    weight = filters[i].keep * weight - filters[i].rate * matrices[i].values[from];
  });
}

}  // namespace

void step_filters(CpuParameters& parameters, const FilterSteps& filters, int iterations,
                  Team& team) {
  FilterSteps together;
  std::size_t floats = 0;
  for (const FilterStep& filter : filters) {
    const nn::Slice& slice = parameters.layout().slices[filter.slice];
    check(slice.form.rows > 0, slice.tensor.name + " is not stored as a matrix, which Muon needs");
    const std::size_t room = optim::muon_room(slice.form.rows, slice.form.columns);
    if (!together.empty() && floats + room > optim::muon_together) {
      step_together(parameters, together, iterations, team);
      together.clear();
      floats = 0;
    }
    together.push_back(filter);
    floats += room;
  }
  if (!together.empty()) step_together(parameters, together, iterations, team);
}

}  // namespace lockstep::cpu
