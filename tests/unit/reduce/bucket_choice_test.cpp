#include "lockstep/reduce/buckets.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/comm/control.hpp"
#include "tests/support/laws/solo.hpp"

using namespace lockstep::reduce;
using lockstep::comm::LoneControl;
using lockstep::test::SoloCommunicator;

namespace {

/// What buckets of a size add to a step: their latencies, and the last one, which nothing hides.
double added_s(const LinkCost& cost, std::size_t bytes, float bucket_mb) {
  const double bucket = static_cast<double>(bucket_mb) * 1e6;
  return static_cast<double>(bytes) / bucket * cost.latency_s + bucket / cost.bytes_per_s;
}

}  // namespace

TEST_CASE("the chosen size of buckets adds the least to a step", "[bucket_choice]") {
  for (const double latency_s : {10e-6, 300e-6, 2e-3})
    for (const double bytes_per_s : {12.5e6, 125e6, 1e9, 10e9})
      for (const std::size_t bytes : {1'000'000, 102'000'000, 500'000'000}) {
        const LinkCost cost{latency_s, bytes_per_s};
        const double chosen = added_s(cost, bytes, best_bucket_mb(cost, bytes));
        for (const float other : bucket_sizes_mb)
          CHECK(chosen <= added_s(cost, bytes, other) * 1.000001);
      }
}

TEST_CASE("a network of low latency gets small buckets, a fast and late one large ones",
          "[bucket_choice]") {
  CHECK(best_bucket_mb({20e-6, 1e9}, 1'000'000) == 1);
  CHECK(best_bucket_mb({300e-6, 125e6}, 102'000'000) == 2);
  CHECK(best_bucket_mb({50e-6, 10e9}, 102'000'000) == 8);
  CHECK(best_bucket_mb({2e-3, 10e9}, 102'000'000) == 25);
}

TEST_CASE("measured costs are positive numbers, even where nothing moves", "[bucket_choice]") {
  SoloCommunicator communicator;
  LoneControl control;
  const LinkCost cost = measure_all_reduce(communicator, control);
  CHECK(cost.latency_s > 0);
  CHECK((cost.bytes_per_s > 0 && std::isfinite(cost.bytes_per_s)));
}
