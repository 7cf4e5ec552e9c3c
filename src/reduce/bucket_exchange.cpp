// Why a slice waits for two gradients. A bucket is ready when the weight and the data gradients of
// its slices have run: an update must not overwrite weights that a data gradient still reads.
//
// Why fp16 updates at once. All reduced buckets are checked for overflow before one update. In
// other precisions a bucket is updated as it arrives. Clipping (`optim.clip-norm`) waits for all
// buckets, too: it needs the norm of all gradients.

#include "reduce/bucket_exchange.hpp"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::reduce {

BucketExchange::BucketExchange(ExchangeSpec spec, comm::Communicator& communicator)
    : communicator_(communicator),
      kind_(spec.kind),
      update_at_once_(spec.update_at_once),
      buckets_(std::move(spec.buckets)) {
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
  BucketExchange::begin();
}

void BucketExchange::begin() {
  check(next_ == 0 || next_ == buckets_.size(), "a step began before the last one was reduced");
  final_.assign(bucket_of_slice_.size(), false);
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.last_slice - bucket.first_slice);
  next_ = 0;
}

void BucketExchange::ready(std::size_t slice) {
  if (slice >= final_.size() || final_[slice]) [[unlikely]]
    throw Error(
        fmt::format("slice {} of {} became final twice or does not exist", slice, final_.size()));
  final_[slice] = true;
  --missing_[bucket_of_slice_[slice]];
  for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_) start(next_);
}

void BucketExchange::wait(std::size_t bucket) {
  if (bucket >= next_) [[unlikely]]
    throw Error(fmt::format("bucket {} was never filled: {} of its slices are missing", bucket,
                            bucket < missing_.size() ? missing_[bucket] : 0));
  const comm::Waiting waiting(communicator_.activity, bucket,
                              buckets_[bucket].size * sizeof(float));
  finish(bucket);
}

SliceRange BucketExchange::updates_after(std::size_t bucket) const {
  if (!update_at_once_) return {buckets_[bucket].first_slice, buckets_[bucket].last_slice};
  return bucket + 1 == buckets_.size() ? SliceRange{0, bucket_of_slice_.size()} : SliceRange{};
}

std::string BucketExchange::load(const SavedState& state) {
  require(state.names().empty(),
          fmt::format("the exchange '{}' has no state, but here is '{}'", name(),
                      state.names().empty() ? "" : state.names().front()));
  return "";
}

ExactExchange::ExactExchange(ExchangeSpec spec, comm::Communicator& communicator,
                             device::Stream& compute, float* gradients)
    : BucketExchange(std::move(spec), communicator),
      compute_(compute),
      gradients_(gradients),
      done_(buckets().size()) {}

void ExactExchange::start(std::size_t number) {
  const Bucket& bucket = buckets()[number];
  device::Stream& network = communicator_.network();
  network.wait(*compute_.record());  // the bucket's last gradient precedes its sum
  communicator_.all_reduce(comm::elements(gradients_ + bucket.offset, bucket.size),
                           comm::Reduction::sum, fmt::format("bucket {}", number), network);
  done_[number] = network.record();
}

void ExactExchange::finish(std::size_t bucket) {
  compute_.wait(*done_[bucket]);  // the bucket's sum precedes its update
}

}  // namespace lockstep::reduce
