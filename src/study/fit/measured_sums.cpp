#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/fit/fit.hpp"

namespace lockstep::study {
namespace {

/// The line that holds for this size: the first that reaches it, else the last.
const CommRegime& regime_of(const VerbFigures& figures, double bytes) {
  const auto found = std::ranges::find_if(
      figures.regimes, [bytes](const CommRegime& one) { return bytes <= one.to_bytes; });
  return found == figures.regimes.end() ? figures.regimes.back() : *found;
}

}  // namespace

// A bucket takes alpha_s + bytes / bytes_per_s, and by the law alpha log2(P) + wire 2 (P - 1) / (P
// buckets).
MeasuredSums measured_sums(const std::vector<CommFigures>& files, double gradient_bytes,
                           std::size_t buckets) {
  check(!files.empty() && buckets > 0, "sums without a measurement");
  MeasuredSums mean;
  for (const CommFigures& one : files) {
    const auto found = one.verbs.find("all-reduce");
    require(found != one.verbs.end() && one.ranks > 1,
            fmt::format("--comm: a file of {} has no all-reduces between ranks",
                        counted(static_cast<std::size_t>(one.ranks), "rank")));
    const double ranks = one.ranks, share = 1 / static_cast<double>(files.size());
    const CommRegime& line =
        regime_of(found->second, gradient_bytes / static_cast<double>(buckets));
    mean.alpha_ms += share * 1e3 * line.alpha_s / std::log2(ranks);
    mean.wire_ms += share * 1e3 * gradient_bytes / line.bytes_per_s * ranks / (2 * (ranks - 1));
  }
  return mean;
}

}  // namespace lockstep::study
