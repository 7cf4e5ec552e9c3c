#pragma once

// Why the second hop starts four buckets later. It follows arithmetic on what the first hop
// brought, and all ranks must issue the same collectives in the same order, so time cannot decide
// when it starts. Four buckets later the first hop has usually ended, and backward does not wait
// for it, also where ranks share cores (two were too few there: 4 ranks on 2 cores lost 5 % of a
// step).

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "reduce/bucket_exchange.hpp"

namespace lockstep::reduce {

/// Buckets between the two hops of a bucket.
constexpr std::size_t hops_apart = 4;

/// Sums that need arithmetic next to the collectives: in one hop between the ranks, or in two, the
/// second of which follows arithmetic on what the first one brought.
class HopExchange : public BucketExchange {
 public:
  void begin() override;

 protected:
  HopExchange(ExchangeSpec spec, const ExchangeParts& parts);
  /// The bucket's gradients are in the compute stream: puts the first hop into the network stream.
  virtual void send(std::size_t bucket) = 0;
  /// Whether there is a second hop in this step, and what it is. Later work on the compute stream
  /// sees what the first one brought.
  virtual bool has_second_hop() const { return false; }
  virtual void send_again(std::size_t) {}
  /// Later work on the compute stream sees what all hops brought: makes gradients of it.
  virtual void take(std::size_t bucket) = 0;

  std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  std::size_t world() const { return static_cast<std::size_t>(communicator_.world()); }
  device::Stream& compute() const { return parts_.backend.device().compute(); }
  device::Stream& network() const { return communicator_.network(); }
  std::size_t learned(std::size_t bucket) const;  ///< numbers of it that travel narrow
  /// `count` learned gradients of the bucket from its `first` one on.
  backend::Vector gradients(std::size_t bucket, std::size_t first, std::size_t count) const;
  void sum_statistics(std::size_t bucket);

  const ExchangeParts parts_;
  backend::Vectors& vectors_;

 private:
  void start(std::size_t bucket) final;
  void finish(std::size_t bucket) final;
  void send_again_below(std::size_t bucket);

  std::vector<std::unique_ptr<device::Event>> arrived_, done_;  ///< of the first hop, of all
  std::size_t sent_again_ = 0;  ///< buckets whose second hop has started in this step
};

}  // namespace lockstep::reduce
