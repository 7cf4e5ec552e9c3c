#include "lockstep/reduce/buckets.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::reduce;

namespace {

/// Slices of random sizes at 64-byte boundaries, as an arena has them.
std::vector<Extent> random_arena(std::mt19937& random) {
  std::vector<Extent> slices(random() % 40);
  std::size_t offset = 0;
  for (Extent& slice : slices) {
    const std::size_t most = random() % 2 == 0 ? 64 : 4096;
    slice = {offset, 1 + random() % most};
    offset = (offset + slice.size + 15) / 16 * 16;
  }
  return slices;
}

bool lawful(const std::vector<Bucket>& buckets, const std::vector<Extent>& slices,
            std::size_t bucket_bytes) {
  std::size_t slice = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.first_slice != slice || bucket.last_slice <= slice) return false;
    if (bucket.last_slice > slices.size()) return false;
    slice = bucket.last_slice;
    const Extent& last = slices[slice - 1];
    if (bucket.offset != slices[bucket.first_slice].offset) return false;
    if (bucket.offset + bucket.size != last.offset + last.size) return false;
    const bool large_enough = bucket.size * sizeof(float) >= bucket_bytes;
    if (!large_enough && slice != slices.size()) return false;
    const bool closed_late =
        bucket.last_slice - bucket.first_slice > 1 &&
        (slices[slice - 2].offset + slices[slice - 2].size - bucket.offset) * sizeof(float) >=
            bucket_bytes;
    if (closed_late) return false;
  }
  return slice == slices.size();
}

}  // namespace

TEST_CASE("buckets hold every slice once, in order and whole, and close as soon as they are full",
          "[buckets]") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Extent> slices = random_arena(random);
    const std::size_t bytes = random() % 20000;
    INFO("round " << round << ", " << slices.size() << " slices, buckets of " << bytes << " bytes");
    REQUIRE(lawful(plan_buckets(slices, bytes), slices, bytes));
  }
}

TEST_CASE("an arena without slices has no buckets", "[buckets]") {
  REQUIRE(plan_buckets(std::vector<Extent>{}, 1024).empty());
}

TEST_CASE("a slice larger than a bucket fills one with what precedes it", "[buckets]") {
  const std::vector<Extent> slices{{0, 16}, {16, 1000}, {1016, 16}};
  const std::vector<Bucket> buckets = plan_buckets(slices, 256);
  REQUIRE(buckets.size() == 2);
  REQUIRE(buckets[0].size == 1016);
  REQUIRE(buckets[1].offset == 1016);
}

TEST_CASE("slices that overlap are an error", "[buckets]") {
  const std::vector<Extent> slices{{0, 32}, {16, 16}};
  REQUIRE_THROWS_AS(plan_buckets(slices, 256), Error);
}
