#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::reduce {

/// One span of the gradient arena that is reduced as a whole, and the slices that fill it.
struct Bucket {
  std::size_t offset = 0, size = 0;             ///< floats
  std::size_t first_slice = 0, last_slice = 0;  ///< [first, last)
};

/// Where one slice lies in the arena, in floats.
struct Extent {
  std::size_t offset = 0, size = 0;
};

/// Cuts the arena into contiguous buckets in slice order: each holds whole slices and is closed as
/// soon as it reaches `bucket_bytes`, so that only the last may be smaller. The buckets cover every
/// slice, in order, and never split one. A slice larger than `bucket_bytes` fills a bucket with
/// what precedes it. Pure.
std::vector<Bucket> plan_buckets(std::span<const Extent> slices, std::size_t bucket_bytes);
/// Of all slices but the frozen ones.
std::vector<Bucket> plan_buckets(const nn::ArenaLayout& layout, std::size_t bucket_bytes);

// The size of buckets, from what an all-reduce costs here.

/// What a message or a collective of n bytes takes: latency_s + n / bytes_per_s.
struct LinkCost {
  double latency_s = 0, bytes_per_s = 0;
  double seconds(double bytes) const { return latency_s + bytes / bytes_per_s; }
};

/// Times all-reduces of two sizes in host memory. All ranks get the same result, that of the
/// slowest rank. Collective; takes some transfers of 4 MB.
LinkCost measure_all_reduce(comm::Communicator& communicator, comm::Control& control);

/// The sizes that best_bucket_mb() chooses from, in 10^6 bytes.
inline constexpr float bucket_sizes_mb[] = {1, 2, 4, 8, 16, 25};

/// The size of buckets, in 10^6 bytes, for gradients of `bytes` bytes. Small buckets cost a latency
/// each, and backward does not hide the last one. With buckets of s bytes that is
/// (bytes / s) latency + s / bandwidth, least where s^2 = bytes x latency x bandwidth. Pure.
float best_bucket_mb(const LinkCost& cost, std::size_t bytes);

}  // namespace lockstep::reduce
