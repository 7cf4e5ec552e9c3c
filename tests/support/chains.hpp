#pragma once

#include <cstddef>
#include <functional>
#include <vector>

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

}  // namespace lockstep::test
