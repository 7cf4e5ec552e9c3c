#include "lockstep/study/fit/law.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/statistics.hpp"

namespace lockstep::study {

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
