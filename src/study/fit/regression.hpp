#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/study/fit/fit.hpp"
#include "study/fit/least_squares.hpp"

/// Least squares for the law: what fit.cpp asks for again and again.
namespace lockstep::study {

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

}  // namespace lockstep::study
