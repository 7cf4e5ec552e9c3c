#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/reduce/exchange.hpp"

namespace lockstep::reduce {

/// Reduces the gradient arena bucket by bucket, in place, while backward still runs: every rank
/// gets the sum of all gradients. It has no state.
/// **Invariants:** buckets start in bucket order on every rank (a bucket whose slices are all final
/// waits until those before it have started), so all ranks issue the same collectives in the same
/// order.
class ExactExchange final : public Exchange {
 public:
  ExactExchange(ExchangeSpec spec, comm::Communicator& communicator, device::Stream& compute,
                float* gradients);
  std::string name() const override;
  const std::vector<Bucket>& buckets() const override { return buckets_; }
  void begin() override;
  void ready(std::size_t slice) override;
  void progress() override;
  void wait(std::size_t bucket) override;
  SliceRange updates_after(std::size_t bucket) const override;
  void after_update() override {}
  ExchangeState save(comm::Control&) const override { return {}; }
  void load(const ExchangeState& state) override;
  std::size_t started() const { return next_; }  ///< buckets whose reduction has begun in this step

 private:
  comm::Communicator& communicator_;
  device::Stream& compute_;
  float* gradients_;
  std::vector<Bucket> buckets_;
  bool update_at_once_;
  std::vector<bool> final_;           ///< per slice, in this step
  std::vector<std::size_t> missing_;  ///< per bucket: slices that are not final yet
  std::vector<std::size_t> bucket_of_slice_;
  std::vector<std::unique_ptr<device::Event>> done_;  ///< per bucket, recorded after its reduction
  std::size_t next_ = 0;
};

}  // namespace lockstep::reduce
