#include "ports/cpu/arena/arena.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/muon.hpp"
#include "ports/cpu/kernels/kernels.hpp"

// Why iterations are done on x x'. An iteration is x = p x with a polynomial p of the square matrix
// s = x x', and leaves s = p s p. All of these are polynomials of one symmetric matrix, so their
// products are symmetric, too: half of each is enough. So an iteration costs four halves of
// products of the shorter side, where products with x, whose other side is up to nine times longer
// in a ResNet, would cost two or three times as much. The bits do not depend on the number of
// lanes: each tile of a product is one call.
//
// Why panels. A square that is symmetric has its columns where others have their rows, and x' is
// what both products with x need. So nothing is copied or transposed before a product; of oneDNN's
// sgemm on tiles, whose sums are short, that was a large part.

namespace lockstep::cpu {

namespace {

/// Of a tile, and of the sums that one call makes: what they read stays in a core's caches.
constexpr std::size_t tile_rows = 4, tile_panels = 8, most_chunks = 16;
constexpr std::size_t block_floats = 16 * 16;

/// A part of a product, in blocks of 16 rows and panels of 16 columns.
struct Tile {
  std::size_t matrix, row, rows, panel, panels;
};

/// What a tile's product reads and writes.
struct Factors {
  decltype(PanelKernels::multiply) multiply;
  const float* left;
  std::size_t left_block;  ///< floats from 16 rows to the next 16
  std::size_t left_chunk;  ///< PanelProduct's
  const float* right;
  std::size_t right_panel;
  float* out;
  std::size_t out_panel;
  std::size_t chunks;
};

class Iterations {
 public:
  Iterations(std::vector<WideMatrix>& matrices, Team& team) : matrices_(matrices), team_(team) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      cut(i, matrices[i].width, false, wide_);
      cut(i, matrices[i].height, true, square_);
    }
    // The small ones last, so that no lane is still at a large one when the others have ended.
    for (auto* tiles : {&wide_, &square_})
      std::ranges::stable_sort(*tiles, std::greater<>(), [&](const Tile& tile) {
        return tile.rows * tile.panels * matrices[tile.matrix].height;
      });
  }

  /// `count` iterations by way of their product.
  void run(int count) {
    make_squares(s_);
    make_polynomial(q_);
    std::size_t newest = q_;
    for (int i = 1; i < count; ++i) {
      multiply_squares(newest, s_, t_);
      multiply_squares(t_, newest, s_);
      make_polynomial(p_);
      newest = p_;
      multiply_squares(p_, q_, t_);
      std::swap(q_, t_);
    }
    apply(q_);
  }

 private:
  /// Tiles of a product of this many rows and of the matrix's height; `lower`: of those up to the
  /// diagonal.
  void cut(std::size_t matrix, std::size_t height, bool lower, std::vector<Tile>& tiles) const {
    const std::size_t rows = height / 16, panels = matrices_[matrix].height / 16;
    for (std::size_t row = 0; row < rows; row += tile_rows) {
      const std::size_t of_row = std::min(tile_rows, rows - row);
      const std::size_t end = lower ? std::min(panels, row + of_row) : panels;
      for (std::size_t panel = 0; panel < end; panel += tile_panels)
        tiles.push_back({matrix, row, of_row, panel, std::min(tile_panels, end - panel)});
    }
  }

  template <class Work>
  void each(const std::vector<Tile>& tiles, const Work& work) {
    std::atomic<std::size_t> next{0};
    team_.run([&](std::size_t) {
      for (std::size_t i = next++; i < tiles.size(); i = next++)
        work(tiles[i], matrices_[tiles[i].matrix]);
    });
  }
  static float* square(const WideMatrix& m, std::size_t number) {
    return m.squares + number * m.height * m.height;
  }
  /// How many of the tile's panels are up to the diagonal in a block of rows.
  static std::size_t up_to_diagonal(const Tile& tile, std::size_t row) {
    return std::min(tile.panels, row + 1 - std::min(row + 1, tile.panel));
  }

  /// `lower`: without what is above the diagonal.
  static void multiply(const Tile& tile, const Factors& f, bool lower) {
    for (std::size_t chunk = 0; chunk < f.chunks; chunk += most_chunks)
      for (std::size_t row = tile.row; row < tile.row + tile.rows; ++row)
        f.multiply({.left = f.left + row * f.left_block + chunk * f.left_chunk,
                    .left_chunk = f.left_chunk,
                    .right = f.right + tile.panel * f.right_panel + chunk * block_floats,
                    .right_panel = f.right_panel,
                    .out = f.out + tile.panel * f.out_panel + row * block_floats,
                    .out_panel = f.out_panel,
                    .panels = lower ? up_to_diagonal(tile, row) : tile.panels,
                    .chunks = std::min(most_chunks, f.chunks - chunk),
                    .add = chunk > 0});
  }
  /// left' * right up to the diagonal, which is symmetric; both have `steps` rows.
  static void multiply_symmetric(const Tile& tile, std::size_t height, std::size_t steps,
                                 const float* left, const float* right, float* out) {
    multiply(tile,
             {.multiply = panel_kernels().multiply,
              .left = left,
              .left_block = steps * 16,
              .left_chunk = block_floats,
              .right = right,
              .right_panel = steps * 16,
              .out = out,
              .out_panel = height * 16,
              .chunks = steps / 16},
             true);
  }
  /// A product is symmetric but for rounding. It has to be so entirely: what is left would grow
  /// from one product to the next, because the rows that are read are those of the transpose.
  static void make_symmetric(float* diagonal_block) {
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t c = r + 1; c < 16; ++c)
        diagonal_block[r * 16 + c] = diagonal_block[c * 16 + r];
  }
  /// Calls work(block) for those of the tile up to the diagonal, and copies what they are then to
  /// above it.
  template <class Work>
  static void finish(const Tile& tile, std::size_t height, float* out, const Work& work) {
    const auto at = [&](std::size_t row, std::size_t panel) {
      return panel * height * 16 + row * block_floats;
    };
    for (std::size_t row = tile.row; row < tile.row + tile.rows; ++row)
      for (std::size_t i = 0; i < up_to_diagonal(tile, row); ++i) {
        const std::size_t panel = tile.panel + i;
        float* here = out + at(row, panel);
        work(at(row, panel), row == panel);
        if (row == panel)
          make_symmetric(here);
        else
          panel_kernels().transpose(here, out + at(panel, row));
      }
  }

  /// x x'
  void make_squares(std::size_t to) {
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      multiply_symmetric(t, m.height, m.width, m.values, m.values, square(m, to));
      finish(t, m.height, square(m, to), [](std::size_t, bool) {});
    });
  }
  void multiply_squares(std::size_t left, std::size_t right, std::size_t to) {
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      multiply_symmetric(t, m.height, m.height, square(m, left), square(m, right), square(m, to));
      finish(t, m.height, square(m, to), [](std::size_t, bool) {});
    });
  }
  /// a + b * s + c * s s
  void make_polynomial(std::size_t to) {
    constexpr optim::Quintic quintic;
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      const float* s = square(m, s_);
      float* out = square(m, to);
      multiply_symmetric(t, m.height, m.height, s, s, out);
      finish(t, m.height, out, [&](std::size_t at, bool diagonal) {
        float_kernels().scale(quintic.c, block_floats, out + at);
        vector_kernels().add(quintic.b, s + at, block_floats, out + at);
        for (std::size_t i = 0; diagonal && i < block_floats; i += 17) out[at + i] += quintic.a;
      });
    });
  }
  /// x' times a square.
  void apply(std::size_t right) {
    each(wide_, [&](const Tile& t, const WideMatrix& m) {
      multiply(t,
               {.multiply = panel_kernels().multiply_rows,
                .left = m.values,
                .left_block = block_floats,
                .left_chunk = m.width * 16,
                .right = square(m, right),
                .right_panel = m.height * 16,
                .out = m.next,
                .out_panel = m.width * 16,
                .chunks = m.height / 16},
               false);
    });
    for (WideMatrix& m : matrices_) std::swap(m.values, m.next);
  }

  std::vector<WideMatrix>& matrices_;
  Team& team_;
  std::vector<Tile> wide_, square_;
  std::size_t s_ = 0, p_ = 1, t_ = 2, q_ = 3;  // numbers of a matrix's squares
};

}  // namespace

void orthogonalise(std::vector<WideMatrix>& matrices, int iterations, Team& team) {
  Iterations all(matrices, team);
  for (int done = 0; done < iterations;) {
    const int now = optim::muon_at_once(iterations - done, done == 0);
    all.run(now);
    done += now;
  }
}

// A filter's values lie in the arena as oneDNN wants them. Its matrix may have its columns in any
// order, because the result then has them in the same one.

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
