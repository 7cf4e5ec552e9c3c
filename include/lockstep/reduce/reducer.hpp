#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/reduce/buckets.hpp"

namespace lockstep::reduce {

/// Reduces the gradient arena bucket by bucket while backward still runs. Per step: begin(),
/// ready(slice) for each slice in whatever order they become final, progress() between backward's
/// pieces, then wait(bucket) for each bucket in order before its update.
/// **Invariants:** buckets start in bucket order on every rank (a bucket whose slices are all final
/// waits until those before it have started), so all ranks issue the same collectives in the same
/// order.
/// **Thread safety:** none; one thread uses it.
class BucketReducer {
 public:
  /// `gradients`: the arena's first float. compute: the stream on which gradients become final.
  BucketReducer(comm::Communicator& communicator, device::Stream& compute, float* gradients,
                std::vector<Bucket> buckets);
  void begin();
  void ready(std::size_t slice);
  void progress();
  void wait(std::size_t bucket);  ///< later work on `compute` sees the reduced bucket; throws Error
                                  ///< if the bucket was never filled
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t started() const { return next_; }  ///< buckets whose reduction has begun in this step

 private:
  comm::Communicator& communicator_;
  device::Stream& compute_;
  float* gradients_;
  std::vector<Bucket> buckets_;
  std::vector<bool> final_;           ///< per slice, in this step
  std::vector<std::size_t> missing_;  ///< per bucket: slices that are not final yet
  std::vector<std::size_t> bucket_of_slice_;
  std::vector<std::unique_ptr<device::Event>> done_;  ///< per bucket, recorded after its reduction
  std::size_t next_ = 0;
};

}  // namespace lockstep::reduce
