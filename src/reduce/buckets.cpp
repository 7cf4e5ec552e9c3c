// Why buckets never copy. The arena is in backward order, so gradients become final from its start
// to its end. A bucket is a contiguous span and is reduced in place. The network alone fixes the
// order, so ranks agree without talking.
#include "lockstep/reduce/buckets.hpp"

#include "lockstep/base/error.hpp"

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

}  // namespace lockstep::reduce
