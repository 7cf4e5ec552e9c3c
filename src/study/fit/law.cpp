#include "lockstep/study/fit/law.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::study {

double expected_largest(double ranks) {
  if (ranks < 2) return 0;
  // Blom (1958): the normal quantile at (P - 0.375) / (P + 0.25), here for its upper tail by the
  // rational approximation of Abramowitz and Stegun 26.2.23, within 5e-4.
  const double tail = 0.625 / (ranks + 0.25);
  const double t = std::sqrt(-2 * std::log(tail));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

TimeShares Law::split(double rows, double ranks) const {
  TimeShares split;
  split.compute = c_ms * rows;
  split.fixed = a_ms;
  split.jitter = jitter * split.compute * expected_largest(ranks);
  const double n = static_cast<double>(buckets);
  const double bucket_ms = alpha_ms * std::log2(ranks) + wire_ms * 2 * (ranks - 1) / (ranks * n);
  split.exposed = std::max(bucket_ms, n * bucket_ms - (n - 1) / n * backward * split.compute);
  return split;
}

}  // namespace lockstep::study
