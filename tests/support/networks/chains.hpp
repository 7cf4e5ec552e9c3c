#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include "lockstep/backend/recompute.hpp"

namespace lockstep::test {

using backend::Span;
using Spans = std::vector<Span>;

/// Calls `visit` with every way to cut the chain into spans.
inline void each_way(std::size_t segments, const std::function<void(const Spans&)>& visit) {
  Spans way;
  const std::function<void(std::size_t)> from = [&](std::size_t first) {
    if (first == segments) return visit(way);
    for (std::size_t last = first + 1; last <= segments; ++last) {
      for (const bool again : {false, true}) {
        if (again && last == segments) continue;
        way.push_back({first, last, again});
        from(last);
        way.pop_back();
      }
    }
  };
  from(0);
}

/// Compares the chain's plans with a search through all ways to cut it; `peak_of` places what a way
/// keeps.
inline void check_plans(const backend::Chain& chain,
                        const std::function<std::size_t(const Spans&)>& peak_of) {
  REQUIRE(chain.segments() <= 12);
  const std::size_t most = chain.peak({{0, chain.segments(), false}});
  std::size_t least = most;
  each_way(chain.segments(), [&](const Spans& way) {
    const std::size_t peak = peak_of(way);
    REQUIRE(peak == chain.peak(way));
    least = std::min(least, peak);
  });
  const std::size_t limit = (least + most) / 2;
  double best = -1;
  each_way(chain.segments(), [&](const Spans& way) {
    if (chain.peak(way) > limit) return;
    const double made_again = chain.operations(way);
    if (best < 0 || made_again < best) best = made_again;
  });
  CHECK(chain.peak(chain.least_memory()) == least);
  REQUIRE(best > 0);
  CHECK(chain.operations(*chain.fewest_operations(limit)) == best);
}

}  // namespace lockstep::test
