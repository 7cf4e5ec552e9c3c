#pragma once

#include <cstddef>
#include <span>
#include <vector>

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

}  // namespace lockstep::reduce
