// Why buckets never copy. The arena is in backward order, so gradients become final from its start
// to its end. A bucket is a contiguous span and is reduced in place. The network alone fixes the
// order, so ranks agree without talking.

#include "lockstep/reduce/buckets.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"

namespace lockstep::reduce {

std::vector<Bucket> plan_buckets(std::span<const Extent> slices, std::size_t bucket_bytes) {
  std::vector<Bucket> buckets;
  bool open = false;  // the last bucket still accepts slices
  std::size_t end = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Extent& slice = slices[i];
    check(i == 0 || slice.offset >= end, "the arena's slices overlap or are out of order");
    end = slice.offset + slice.size;
    if (!open) buckets.push_back({.offset = slice.offset, .first_slice = i, .last_slice = i});
    Bucket& bucket = buckets.back();
    bucket.size = end - bucket.offset;
    bucket.last_slice = i + 1;
    open = bucket.size * sizeof(float) < bucket_bytes;
  }
  return buckets;
}

std::vector<Bucket> plan_buckets(const nn::ArenaLayout& layout, std::size_t bucket_bytes) {
  std::vector<Extent> extents;
  for (std::size_t s = 0; s < layout.moving_slices(); ++s)
    extents.push_back({layout.slices[s].offset, layout.slices[s].size});
  return plan_buckets(extents, bucket_bytes);
}

namespace {

constexpr std::size_t small_floats = 1 << 14, large_floats = 1 << 20;
constexpr int rounds = 5;
constexpr double least_latency_s = 1e-6;

/// The median of some rounds; the first, untimed one makes connections and pages.
double seconds_of(comm::Communicator& communicator, comm::Control& control,
                  std::vector<float>& values, std::size_t count) {
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    control.barrier("measuring all-reduces");
    const double began_s = now_s();
    communicator.all_reduce(comm::elements(values.data(), count), comm::Reduction::sum,
                            "measuring all-reduces", communicator.network());
    communicator.network().synchronize();
    if (round > 0) times.push_back(now_s() - began_s);
  }
  return lower_median(std::move(times));
}

}  // namespace

LinkCost measure_all_reduce(comm::Communicator& communicator, comm::Control& control) {
  std::vector<float> values(large_floats);
  const double small_s = seconds_of(communicator, control, values, small_floats);
  const double large_s = seconds_of(communicator, control, values, large_floats);
  const auto slowest = control.max({small_s, large_s}, "measuring all-reduces");
  const double more_bytes = (large_floats - small_floats) * sizeof(float);
  const double bytes_per_s = more_bytes / std::max(slowest[1] - slowest[0], least_latency_s);
  const double latency_s = slowest[0] - small_floats * sizeof(float) / bytes_per_s;
  return {.latency_s = std::max(latency_s, least_latency_s), .bytes_per_s = bytes_per_s};
}

float best_bucket_mb(const LinkCost& cost, std::size_t bytes) {
  const double best_mb =
      std::sqrt(static_cast<double>(bytes) * cost.latency_s * cost.bytes_per_s) / 1e6;
  // The next of the sizes in the ratio, because both terms grow with the ratio.
  const auto distance = [best_mb](float size) { return std::abs(std::log(size / best_mb)); };
  return *std::min_element(std::begin(bucket_sizes_mb), std::end(bucket_sizes_mb),
                           [&](float a, float b) { return distance(a) < distance(b); });
}

}  // namespace lockstep::reduce
