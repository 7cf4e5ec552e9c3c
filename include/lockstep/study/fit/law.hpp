#pragma once

#include <cstddef>

/// The law of a step's time.
namespace lockstep::study {

/// Where the time of a step goes, in ms.
struct TimeShares {
  double compute = 0;  ///< grows with the rows
  double fixed = 0;    ///< each step, whatever the rows: launches, small kernels, update
  double exposed = 0;  ///< communication that backward does not hide
  double jitter = 0;   ///< waiting for the slowest rank
  double total() const { return compute + fixed + exposed + jitter; }
};

/// t(b, P) = c b + a + exposed(b, P) + jitter(b, P), for b rows on each of P ranks.
///
/// Exposed communication comes from a timeline of equal buckets: the last of n buckets is ready at
/// the end of backward, the first after an n-th of it. Each takes k = alpha log2(P) + wire 2 (P -
/// 1) / (P n). They follow each other, so the last ends max(k, n k - (n - 1) / n W) after backward,
/// where W is the time of backward.
struct Law {
  double c_ms = 0;      ///< of one row
  double a_ms = 0;      ///< of one step
  double alpha_ms = 0;  ///< latency of a bucket, for each doubling of the ranks
  double wire_ms = 0;   ///< all gradients once over a rank's link
  std::size_t buckets = 1;
  double backward = 2.0 / 3;   ///< its share of c b
  double jitter = 0;           ///< standard deviation of a rank's step, as a share of c b
  bool measured_sums = false;  ///< alpha and wire are what bench comm measured, not fitted

  TimeShares split(double rows, double ranks) const;
  double step_ms(double rows, double ranks) const { return split(rows, ranks).total(); }
};

}  // namespace lockstep::study
