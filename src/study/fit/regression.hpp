#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "lockstep/base/rng.hpp"
#include "lockstep/study/fit/fit.hpp"

/// Least squares for the law, and the random numbers of a bootstrap.
namespace lockstep::study {

constexpr std::size_t most_parameters = 4;
using LawParameters = std::array<double, most_parameters>;

/// What is to be minimised: `count` squares over the first `parameters` parameters that are not
/// held, which stay within their bounds.
struct Problem {
  std::size_t count = 0, parameters = 0;
  std::array<bool, most_parameters> held = {};
  LawParameters low = {}, high = {};
};

struct Solution {
  LawParameters parameters = {};
  double squares = 0;
};

/// Solves A x = b for a symmetric, positive definite A of n rows, in place; x is in b.
inline bool solve(std::array<LawParameters, most_parameters>& a, LawParameters& b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) a[i][i] -= a[i][k] * a[i][k];
    if (!(a[i][i] > 0)) return false;
    a[i][i] = std::sqrt(a[i][i]);
    for (std::size_t row = i + 1; row < n; ++row) {
      for (std::size_t k = 0; k < i; ++k) a[row][i] -= a[row][k] * a[i][k];
      a[row][i] /= a[i][i];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t row = i + 1; row < n; ++row) b[i] -= a[row][i] * b[row];
    b[i] /= a[i][i];
  }
  return true;
}

/// Levenberg and Marquardt's method with bounds: a parameter that is at its bound and would leave
/// it is held for that step. `residual(i, parameters, slopes)` returns residual i and its slopes.
template <class Residual>
Solution minimise(const Problem& problem, LawParameters start, const Residual& residual) {
  const auto squares = [&](const LawParameters& at) {
    double sum = 0;
    LawParameters ignored = {};
    for (std::size_t i = 0; i < problem.count; ++i) {
      const double r = residual(i, at, ignored);
      sum += r * r;
    }
    return std::isfinite(sum) ? sum : HUGE_VAL;
  };
  Solution best{start, squares(start)};
  double damping = 1e-4;
  for (int round = 0; round < 100; ++round) {
    std::array<LawParameters, most_parameters> normal = {};
    LawParameters slope = {};
    for (std::size_t i = 0; i < problem.count; ++i) {
      LawParameters d = {};
      const double r = residual(i, best.parameters, d);
      for (std::size_t j = 0; j < problem.parameters; ++j) {
        slope[j] -= d[j] * r;
        for (std::size_t k = 0; k <= j; ++k) normal[j][k] += d[j] * d[k];
      }
    }
    std::array<std::size_t, most_parameters> free = {};
    std::size_t n = 0;
    for (std::size_t j = 0; j < problem.parameters; ++j) {
      const bool stuck = (best.parameters[j] <= problem.low[j] && slope[j] < 0) ||
                         (best.parameters[j] >= problem.high[j] && slope[j] > 0);
      if (!problem.held[j] && !stuck && normal[j][j] > 0) free[n++] = j;
    }
    if (n == 0) return best;
    bool better = false;
    const double before = best.squares;
    for (; damping < 1e12 && !better; damping *= 8) {
      std::array<LawParameters, most_parameters> a = {};
      LawParameters step = {};
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k <= j; ++k) a[j][k] = normal[free[j]][free[k]];
        a[j][j] *= 1 + damping;
        step[j] = slope[free[j]];
      }
      if (!solve(a, step, n)) continue;
      LawParameters next = best.parameters;
      for (std::size_t j = 0; j < n; ++j)
        next[free[j]] =
            std::clamp(next[free[j]] + step[j], problem.low[free[j]], problem.high[free[j]]);
      const double sum = squares(next);
      if (!(sum < best.squares)) continue;
      best = {next, sum};
      better = true;
    }
    damping = std::max(damping / 64, 1e-9);
    if (!better || before - best.squares <= 1e-10 * before) return best;
  }
  return best;
}

/// A point, prepared: everything of the law that does not depend on its numbers.
struct Observation {
  double rows = 0, latency = 0, wire = 0, jitter = 0;  ///< factors of c, alpha, wire and c b
  double log_ms = 0, weight = 1;
  double step_ms = 0, exposed_ms = 0;
  bool has_exposed = false;
};

/// The law, and which of its terms took part.
struct Regression {
  Law law = {};
  bool has_alpha = false, has_wire = false;
  double squares = 0;  ///< weighted
  std::size_t count = 0, free = 0;
  std::size_t freedom() const { return count - free; }
  double scatter() const;
};

// `shape` has the parts of the law that are the same for all points; measured sums are among them.

Observation observe(const Point& point, const Law& shape);

/// Chooses the terms by Akaike's criterion. `near`: where to begin; its numbers may all be 0.
/// REQUIRES: at least 3 observations, of more than one number of rows.
Regression regress(const std::vector<Observation>& observations, const Law& shape, const Law& near);

/// The relative variance of the law at `at` that comes from its fitted numbers.
double leverage(const std::vector<Observation>& observations, const Law& shape,
                const Regression& fitted, const Observation& at);

/// The random numbers of one replicate of a bootstrap: a function of seed, replicate and position.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t replicate) : seed_(seed), replicate_(replicate) {}
  std::size_t below(std::size_t position, std::size_t n) const {
    return lockstep::below(words(position).word[0], static_cast<std::uint32_t>(n));
  }
  /// Standard normal.
  double normal(std::size_t position) const {
    const Philox w = words(position);
    const double u = (w.word[1] + 0.5) * 0x1p-32, v = w.word[2] * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }
  /// What a standard deviation that was estimated with this much freedom is to be multiplied with,
  /// so that the results are spread like Student's t.
  double doubt(std::size_t position, std::size_t freedom) const {
    double squares = 0;
    for (std::size_t i = 0; i < freedom; ++i) squares += std::pow(normal(position + i), 2);
    return std::sqrt(static_cast<double>(freedom) / squares);
  }

 private:
  Philox words(std::size_t position) const { return philox(seed_, position, replicate_); }
  std::uint64_t seed_, replicate_;
};

}  // namespace lockstep::study
