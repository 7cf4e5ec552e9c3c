#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reduce/bucket_exchange.hpp"

namespace lockstep::reduce {

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
