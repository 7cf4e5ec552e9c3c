#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/reduce/exchange.hpp"

namespace lockstep::reduce {

/// Throws InputError: the exchange keeps nothing from step to step, but this checkpoint holds some.
void require_no_state(const Exchange& exchange, const ExchangeState& state);

/// Which buckets of a step have all their slices. Buckets start in their order on every rank: one
/// whose slices are all final waits until those before it have started, so all ranks issue the same
/// collectives in the same order.
class Filling {
 public:
  /// `buckets` hold all slices in order.
  explicit Filling(std::vector<Bucket> buckets);
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const Bucket& bucket(std::size_t number) const { return buckets_[number]; }

  /// Throws Error when the last step is not over.
  void begin();
  /// The slice's gradient is final: calls start(bucket) for each bucket that starts now. Throws
  /// Error when it already was.
  template <class Start>
  void ready(std::size_t slice, const Start& start) {
    note(slice);
    for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_) start(next_);
  }
  /// Throws Error when the bucket has not started.
  void require_started(std::size_t bucket) const;
  std::size_t started() const { return next_; }  ///< in this step
  /// Exchange::updates_after().
  SliceRange updates_after(std::size_t bucket, bool all_at_once) const;

 private:
  void note(std::size_t slice);

  std::vector<Bucket> buckets_;
  std::vector<bool> final_;           ///< per slice, in this step
  std::vector<std::size_t> missing_;  ///< per bucket: slices that are not final yet
  std::vector<std::size_t> bucket_of_slice_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::reduce
