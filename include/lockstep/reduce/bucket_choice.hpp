#pragma once

// The size of buckets, from what an all-reduce costs here.

#include <cstddef>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::reduce {

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
