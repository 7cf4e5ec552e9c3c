#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/fit/interval.hpp"
#include "lockstep/study/fit/law.hpp"
#include "lockstep/study/fit/points.hpp"
#include "lockstep/study/machine/comm_figures.hpp"

/// Fits the law of a step's time to measured points, and says how far to trust it.
namespace lockstep::study {

/// Fewer points than this are a table, not a fit.
constexpr std::size_t fewest_points = 5;

/// What sums between ranks cost, as bench comm measured it: two of the law's numbers.
struct MeasuredSums {
  double alpha_ms = 0, wire_ms = 0;
};

/// The law's numbers for `gradient_bytes` in `buckets` parts, from the line of each file's
/// all-reduces that holds for a bucket; the mean over the files, of different numbers of ranks.
/// REQUIRES: at least one file. Throws InputError for one without all-reduces or with one rank.
MeasuredSums measured_sums(const std::vector<CommFigures>& files, double gradient_bytes,
                           std::size_t buckets);

struct FitSpec {
  std::size_t fewest = fewest_points;
  std::size_t replicates = 1000;  ///< of the bootstrap
  double confidence = 0.9;        ///< of intervals
  std::uint64_t seed = 1;
  std::size_t buckets = 1;
  double backward = 2.0 / 3;
  std::optional<double> jitter = {};      ///< as Law::jitter; empty: from the points' spread
  std::optional<MeasuredSums> sums = {};  ///< latency and wire are these and are not fitted
};

/// A point and what the law says about it.
struct Judged {
  Point point;
  double law_ms = 0;
  bool outlier = false;  ///< the law was not fitted to it
  /// Measured / law - 1.
  double deviation() const { return point.step_ms / law_ms - 1; }
};

/// One refit to disturbed points, and the disturbance of a new measurement.
struct Replicate {
  Law law;
  double noise = 0;  ///< of log(time)
};

/// A fitted law. `replicates` hold what the points leave open.
struct Fit {
  Law law;
  bool has_alpha = false, has_wire = false;  ///< which terms the points call for
  double scatter = 0;                        ///< relative standard deviation around the law
  double confidence = 0;
  std::vector<Judged> points;
  std::vector<Replicate> replicates;

  bool has_communication() const { return law.measured_sums || has_alpha || has_wire; }
  std::size_t most_ranks() const;  ///< of the points that the law was fitted to
  double fewest_rows() const;
  double most_rows() const;
};

/// Why no law can be fitted to these points; empty: one can.
std::string why_no_fit(const std::vector<Point>& points, const FitSpec& spec);

/// Least squares of log(time), with all terms >= 0. Unless they were measured, latency and wire are
/// only in the law when the points call for them (Akaike's criterion, corrected for few points).
/// Points that contradict all others are named and left out. REQUIRES: points from points(). Throws
/// InputError with why_no_fit().
Fit fit_law(const std::vector<Point>& points, const FitSpec& spec);

/// Where a new measurement of a step is expected, in ms.
Interval predict_step(const Fit& fit, double rows, double ranks);

/// Intervals of one of the law's numbers.
Interval interval_of(const Fit& fit, double Law::*number);

/// Predicting the largest points from the others: how far the law can be trusted beyond them.
struct LeftOut {
  Point point;
  Interval step_ms;
  double error() const { return step_ms.middle / point.step_ms - 1; }
};
/// Empty when too few points remain.
std::vector<LeftOut> leave_out_largest(const Fit& fit, const FitSpec& spec);

/// What is risky about this prediction: far beyond the measured ranks, or outside the measured
/// rows. Empty: nothing.
std::string caution(const Fit& fit, double rows, double ranks);

}  // namespace lockstep::study
