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
    const std::size_t columns = parameters.arena().slices[filters[i].slice].form.columns;
    for (std::size_t c = 0; c < columns; c += columns_at_once)
      pieces.push_back({i, c, std::min(columns, c + columns_at_once)});
  }
  return pieces;
}

/// Calls work(filter, run) for all values.
template <class Work>
void each_run(const CpuParameters& parameters, const FilterSteps& filters,
              const std::vector<WideMatrix>& matrices, Team& team, const Work& work) {
  const std::vector<Piece> pieces = cut_columns(parameters, filters);
  team.run([&](std::size_t lane) {
    const std::size_t end = pieces.size() * (lane + 1) / team.lanes();
    for (std::size_t i = pieces.size() * lane / team.lanes(); i < end; ++i) {
      const Piece& piece = pieces[i];
      const nn::MatrixForm& form = parameters.arena().slices[filters[piece.filter].slice].form;
      for (std::size_t row = 0; row < form.rows; row += next_run(form, row))
        for (std::size_t c = piece.first; c < piece.last; ++c)
          work(piece.filter, run_at(form, matrices[piece.filter], row, c));
    }
  });
}

WideMatrix place(const nn::MatrixForm& form, float* room) {
  const std::size_t height = whole_panels(std::min(form.rows, form.columns)),
                    width = whole_panels(std::max(form.rows, form.columns));
  if (height * width > form.rows * form.columns) std::fill_n(room, height * width, 0.f);
  return {.height = height,
          .width = width,
          .values = room,
          .next = room + height * width,
          .squares = room + 2 * height * width};
}

void step_together(CpuParameters& parameters, const FilterSteps& filters, int iterations,
                   Team& team) {
  const std::vector<nn::Slice>& slices = parameters.arena().slices;
  std::size_t floats = 0;
  for (const FilterStep& filter : filters)
    floats += optim::muon_room(slices[filter.slice].form.rows, slices[filter.slice].form.columns);
  float* room = parameters.room(floats);
  std::vector<WideMatrix> matrices;
  std::vector<const float*> steps;
  std::vector<float*> weights;
  for (const FilterStep& filter : filters) {
    const nn::Slice& slice = slices[filter.slice];
    matrices.push_back(place(slice.form, room));
    room += optim::muon_room(slice.form.rows, slice.form.columns);
    steps.push_back(parameters.at(Part::gradients, slice.offset));
    weights.push_back(parameters.at(Part::weights, slice.offset));
  }
  each_run(parameters, filters, matrices, team, [&](std::size_t i, const Run& run) {
    const float begin = filters[i].begin;
    const float* from = steps[i] + run.from;
    float* to = matrices[i].values + run.to;
    for (std::size_t k = 0; k < run.count; ++k) to[k * run.stride] = begin * from[k];
  });
  orthogonalise(matrices, iterations, team);
  each_run(parameters, filters, matrices, team, [&](std::size_t i, const Run& run) {
    const float keep = filters[i].keep, rate = filters[i].rate;
    const float* from = matrices[i].values + run.to;
    float* to = weights[i] + run.from;
    for (std::size_t k = 0; k < run.count; ++k) to[k] = keep * to[k] - rate * from[k * run.stride];
  });
}

}  // namespace

void step_filters(CpuParameters& parameters, const FilterSteps& filters, int iterations,
                  Team& team) {
  FilterSteps together;
  std::size_t floats = 0;
  for (const FilterStep& filter : filters) {
    const nn::Slice& slice = parameters.arena().slices[filter.slice];
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
