#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/reduce/exchange.hpp"

namespace lockstep::reduce {

/// Sums gradients bucket by bucket while backward still runs; how, its classes say. Every rank gets
/// the same bits. Buckets start in their order on every rank: one whose slices are all final waits
/// until those before it have started, so all ranks issue the same collectives in the same order.
/// Nothing is kept from step to step, unless a class says so.
class BucketExchange : public Exchange {
 public:
  std::string name() const override { return choice_name(kind_); }
  const std::vector<Bucket>& buckets() const override { return buckets_; }
  void begin() override;
  void ready(std::size_t slice) override;
  void progress() override { communicator_.progress(); }
  void wait(std::size_t bucket) override;
  SliceRange updates_after(std::size_t bucket) const override;
  void after_update() override {}
  StateOutline outline() const override { return {}; }
  void save(comm::Control&, const TakeBytes&) const override {}
  std::string load(const SavedState& state) override;
  void begin_at(std::uint64_t) override {}
  std::size_t started() const { return next_; }  ///< buckets whose sum has begun in this step

 protected:
  BucketExchange(ExchangeSpec spec, comm::Communicator& communicator);
  /// All gradients of the bucket are in the compute stream: puts its sum into the network stream.
  virtual void start(std::size_t bucket) = 0;
  /// Later work on the compute stream sees the sum in the gradients.
  virtual void finish(std::size_t bucket) = 0;

  comm::Communicator& communicator_;

 private:
  const ExchangeKind kind_;
  const bool update_at_once_;
  const std::vector<Bucket> buckets_;  ///< which hold all slices in order
  std::vector<bool> final_;            ///< per slice, in this step
  std::vector<std::size_t> missing_;   ///< per bucket: slices that are not final yet
  std::vector<std::size_t> bucket_of_slice_;
  std::size_t next_ = 0;
};

/// Sums in full precision, in place.
class ExactExchange final : public BucketExchange {
 public:
  ExactExchange(ExchangeSpec spec, comm::Communicator& communicator, device::Stream& compute,
                float* gradients);
  std::string name() const override { return choice_name(ExchangeKind::exact); }

 private:
  void start(std::size_t bucket) override;
  void finish(std::size_t bucket) override;

  device::Stream& compute_;
  float* gradients_;
  std::vector<std::unique_ptr<device::Event>> done_;  ///< per bucket, recorded after its sum
};

}  // namespace lockstep::reduce
