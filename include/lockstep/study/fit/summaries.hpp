#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/fit/fit.hpp"

/// The classic one-line laws of scaling. They describe a series of measurements; unlike the law of
/// a step's time they do not say why, because they do not know the rows of a rank.
namespace lockstep::study {

/// A throughput at a number of ranks, users or processors.
struct Load {
  double ranks = 0, throughput = 0;
};

/// Amdahl: with the same batch on all ranks, T(N) = T(1) (s + (1 - s) / N).
/// Gustafson: with the same rows on each rank, X(N) = X(1) (N - s (N - 1)).
struct SerialFraction {
  Interval fraction;
  std::size_t points = 0;
};
/// Empty when there are fewer than 3 different numbers of ranks.
std::optional<SerialFraction> amdahl(const std::vector<Load>& series, const FitSpec& spec);
std::optional<SerialFraction> gustafson(const std::vector<Load>& series, const FitSpec& spec);

/// Gunther's universal scalability law: X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)).
struct Usl {
  Interval alpha, beta, gamma;
  std::size_t points = 0;
  /// Where throughput is largest; empty when beta may be 0.
  std::optional<double> peak() const;
};
/// Least squares of the throughput, alpha and beta >= 0. Empty when there are fewer than 4 numbers
/// of ranks.
std::optional<Usl> universal_scalability(const std::vector<Load>& series, const FitSpec& spec);

/// Points that form a series: all have the same batch (strong) or the same rows a rank (weak).
struct Series {
  bool strong = false;
  double rows = 0;  ///< the batch, or the rows of a rank
  std::vector<Point> points;
  std::vector<Load> loads() const;
  /// "strong scaling, batch 512" or "weak scaling, 64 rows a rank".
  std::string title() const;
};
/// All with at least 3 numbers of ranks, the longest first. Outliers do not take part.
std::vector<Series> series_of(const Fit& fit);
std::vector<Series> series_of(const std::vector<Point>& points);
/// Those that are no outliers.
std::vector<Point> fitted_points(const Fit& fit);

}  // namespace lockstep::study
