// The planner of what backward makes again, on chains of random numbers.
#include <catch2/catch.hpp>

#include "lockstep/backend/recompute.hpp"
#include "lockstep/base/rng.hpp"
#include "tests/support/networks/chains.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

/// Costs that are like a network's: making a span again stores less of it.
Chain random_chain(std::uint64_t seed, std::size_t segments) {
  return Chain(segments, [=](const Span& span) {
    SpanCost cost;
    for (std::size_t s = span.first; s < span.last; ++s) {
      const Philox r = philox(seed, s, 0);
      const std::size_t bytes = 1 + below(r.word[0], 1000), through = 1 + below(r.word[1], 100);
      cost.peak += bytes;
      cost.stored = span.again ? through : cost.stored + bytes;
      if (span.again) cost.operations += 1 + below(r.word[2], 50);
    }
    cost.peak += below(philox(seed, span.first, 1).word[0], 200);
    return cost;
  });
}

}  // namespace

TEST_CASE("the plan is the best of all plans on chains of up to 12 segments", "[recompute]") {
  for (const std::size_t segments : {1u, 2u, 5u, 8u, 12u}) {
    const Chain chain = random_chain(segments, segments);
    const std::size_t most = chain.peak({{0, chain.segments(), false}});
    constexpr std::size_t limits = 6;
    std::size_t least = most;
    double best[limits];
    std::fill_n(best, limits, -1);
    each_way(segments, [&](const Spans& way) {
      const std::size_t peak = chain.peak(way);
      const double operations = chain.operations(way);
      least = std::min(least, peak);
      for (std::size_t i = 0; i < limits; ++i)
        if (peak <= most * (i + 1) / limits && (best[i] < 0 || operations < best[i]))
          best[i] = operations;
    });
    INFO(segments << " segments, " << most << " bytes at most, " << least << " at least");
    CHECK(chain.peak(chain.least_memory()) == least);
    for (std::size_t i = 0; i < limits; ++i) {
      const std::size_t limit = most * (i + 1) / limits;
      const auto plan = chain.fewest_operations(limit);
      REQUIRE(plan.has_value() == (best[i] >= 0));
      if (!plan) continue;
      CHECK(chain.peak(*plan) <= limit);
      CHECK(chain.operations(*plan) == best[i]);
    }
    CHECK(chain.fewest_operations(most)->size() == 1);  // with enough memory nothing is made again
    CHECK_FALSE(chain.fewest_operations(least - 1).has_value());
  }
}

TEST_CASE("a number of spans is kept to, at the places that need the least memory", "[recompute]") {
  constexpr std::size_t segments = 9;
  const Chain chain = random_chain(3, segments);
  for (std::size_t spans = 1; spans <= segments; ++spans) {
    std::size_t least = static_cast<std::size_t>(-1);
    each_way(segments, [&](const Spans& way) {
      bool fits = way.size() == spans;
      for (const Span& span : way) fits = fits && span.again == (span.last < segments);
      if (fits) least = std::min(least, chain.peak(way));
    });
    const Spans plan = chain.least_memory(spans);
    CHECK(plan.size() == spans);
    CHECK(chain.peak(plan) == least);
  }
  CHECK_THROWS(chain.least_memory(segments + 1));
}

TEST_CASE("--recompute is auto, none or a number of segments", "[recompute]") {
  CHECK(parse_recompute("none", "recompute").mode == Recompute::Mode::none);
  CHECK(parse_recompute("auto", "recompute").mode == Recompute::Mode::automatic);
  CHECK(parse_recompute("7", "recompute").segments == 7);
  for (const char* wrong : {"", "0", "-1", "1.5", "all", "7 ", "99999999999999999999999"})
    CHECK_THROWS_WITH(parse_recompute(wrong, "recompute"), Catch::StartsWith("recompute: "));
}
