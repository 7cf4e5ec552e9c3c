// Why iterations are done on x x'. An iteration is x = p x with a polynomial p of the square matrix
// s = x x', and leaves s = p s p. All of these are polynomials of one symmetric matrix, so their
// products are symmetric, too: half of each is enough. So an iteration costs three halves of
// products of the shorter side, where products with x, whose other side is up to nine times longer
// in a ResNet, would cost two or three times as much. The bits do not depend on the number of
// lanes: each tile of a product is one call.
#include "ports/cpu/arena/orthogonal.hpp"

#include <dnnl.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

constexpr std::size_t tile_rows = 96, tile_columns = 768;

/// A part of a product: rows and columns from these on.
struct Tile {
  std::size_t matrix, row, rows, column, columns;
};

/// alpha * left * right + beta * out, with rows one after the other; right may be transposed.
struct Product {
  std::size_t rows, columns, depth;
  float alpha;
  const float* left;
  std::size_t left_stride;
  bool transposed;
  const float* right;
  std::size_t right_stride;
  float beta;
  float* out;
  std::size_t out_stride;
};

void multiply(const Product& p) {
  const auto dim = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
  const dnnl::status done = dnnl::sgemm('N', p.transposed ? 'T' : 'N', dim(p.rows), dim(p.columns),
                                        dim(p.depth), p.alpha, p.left, dim(p.left_stride), p.right,
                                        dim(p.right_stride), p.beta, p.out, dim(p.out_stride));
  check(done == dnnl::status::success, "oneDNN's sgemm failed");
}

class Iterations {
 public:
  Iterations(std::vector<WideMatrix>& matrices, Team& team) : matrices_(matrices), team_(team) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const std::size_t height = matrices[i].height, width = matrices[i].width;
      cut(i, width, false, wide_);
      cut(i, height, true, square_);
    }
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
  /// Tiles of the rows; `lower`: of those up to the diagonal.
  void cut(std::size_t matrix, std::size_t width, bool lower, std::vector<Tile>& tiles) const {
    const std::size_t height = matrices_[matrix].height, across = lower ? tile_rows : tile_columns;
    for (std::size_t row = 0; row < height; row += tile_rows)
      for (std::size_t column = 0; column < (lower ? row + 1 : width); column += across)
        tiles.push_back({matrix, row, std::min(tile_rows, height - row), column,
                         std::min(across, width - column)});
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
  /// What is below the diagonal is above it, too.
  static void mirror(const Tile& tile, std::size_t height, float* out) {
    if (tile.row == tile.column) return;
    for (std::size_t r = tile.row; r < tile.row + tile.rows; ++r)
      for (std::size_t c = tile.column; c < tile.column + tile.columns; ++c)
        out[c * height + r] = out[r * height + c];
  }

  /// x x'
  void make_squares(std::size_t to) {
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      float* out = square(m, to);
      multiply({t.rows, t.columns, m.width, 1, m.values + t.row * m.width, m.width, true,
                m.values + t.column * m.width, m.width, 0, out + t.row * m.height + t.column,
                m.height});
      mirror(t, m.height, out);
    });
  }
  void multiply_squares(std::size_t left, std::size_t right, std::size_t to) {
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      const std::size_t n = m.height;
      multiply({t.rows, t.columns, n, 1, square(m, left) + t.row * n, n, false,
                square(m, right) + t.column, n, 0, square(m, to) + t.row * n + t.column, n});
      mirror(t, n, square(m, to));
    });
  }
  /// a + b * s + c * s s
  void make_polynomial(std::size_t to) {
    constexpr backend::arithmetic::Quintic quintic;
    each(square_, [&](const Tile& t, const WideMatrix& m) {
      const std::size_t n = m.height;
      const float* s = square(m, s_);
      float* out = square(m, to);
      for (std::size_t r = t.row; r < t.row + t.rows; ++r)
        std::copy_n(s + r * n + t.column, t.columns, out + r * n + t.column);
      multiply({t.rows, t.columns, n, quintic.c, s + t.row * n, n, false, s + t.column, n,
                quintic.b, out + t.row * n + t.column, n});
      if (t.row == t.column)
        for (std::size_t r = t.row; r < t.row + t.rows; ++r) out[r * n + r] += quintic.a;
      mirror(t, n, out);
    });
  }
  void apply(std::size_t left) {
    each(wide_, [&](const Tile& t, const WideMatrix& m) {
      multiply({t.rows, t.columns, m.height, 1, square(m, left) + t.row * m.height, m.height, false,
                m.values + t.column, m.width, 0, m.next + t.row * m.width + t.column, m.width});
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
    const int now = backend::arithmetic::muon_at_once(iterations - done, done == 0);
    all.run(now);
    done += now;
  }
}

}  // namespace lockstep::cpu
