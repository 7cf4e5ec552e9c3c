// Why norms have one order of sums. Each slice is cut into pieces of a fixed size, and their sums
// are added in order, in double. So all ranks find the same norm, with any number of threads.
#include "ports/cpu/arena/arena.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/clip.hpp"

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

void clip_gradients(CpuParameters& parameters, float limit, Team& team) {
  const nn::ArenaLayout& layout = parameters.arena();
  double sum = 0;
  for (const double slice :
       squares(parameters, backend::Part::gradients, {0, layout.learned_slices}, team))
    sum += slice;
  parameters.set_clipped_norm(std::sqrt(sum));
  const float factor = optim::clip_factor(std::sqrt(sum), limit);
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

}  // namespace lockstep::cpu
