#include "reduce/filling.hpp"

#include <fmt/core.h>

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::reduce {

void require_no_state(const Exchange& exchange, const ExchangeState& state) {
  require(state.empty(), fmt::format("the exchange '{}' has no state, but here is '{}'",
                                     exchange.name(), state.empty() ? "" : state.begin()->first));
}

Filling::Filling(std::vector<Bucket> buckets) : buckets_(std::move(buckets)) {
  std::size_t slices = 0;
  for (const Bucket& bucket : buckets_) {
    check(bucket.first_slice == slices && bucket.last_slice > slices,
          "buckets must hold all slices in order");
    slices = bucket.last_slice;
  }
  bucket_of_slice_.resize(slices);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t s = buckets_[b].first_slice; s < buckets_[b].last_slice; ++s)
      bucket_of_slice_[s] = b;
  begin();
}

void Filling::begin() {
  check(next_ == 0 || next_ == buckets_.size(), "a step began before the last one was reduced");
  final_.assign(bucket_of_slice_.size(), false);
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.last_slice - bucket.first_slice);
  next_ = 0;
}

void Filling::note(std::size_t slice) {
  if (slice >= final_.size() || final_[slice]) [[unlikely]]
    throw Error(
        fmt::format("slice {} of {} became final twice or does not exist", slice, final_.size()));
  final_[slice] = true;
  --missing_[bucket_of_slice_[slice]];
}

void Filling::require_started(std::size_t bucket) const {
  if (bucket >= next_) [[unlikely]]
    throw Error(fmt::format("bucket {} was never filled: {} of its slices are missing", bucket,
                            bucket < missing_.size() ? missing_[bucket] : 0));
}

SliceRange Filling::updates_after(std::size_t bucket, bool all_at_once) const {
  if (!all_at_once) return {buckets_[bucket].first_slice, buckets_[bucket].last_slice};
  return bucket + 1 == buckets_.size() ? SliceRange{0, bucket_of_slice_.size()} : SliceRange{};
}

}  // namespace lockstep::reduce
