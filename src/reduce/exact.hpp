#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/reduce/exchange.hpp"
#include "reduce/filling.hpp"

namespace lockstep::reduce {

/// Reduces the gradient arena bucket by bucket, in place, while backward still runs: every rank
/// gets the sum of all gradients. It has no state.
class ExactExchange final : public Exchange {
 public:
  ExactExchange(ExchangeSpec spec, comm::Communicator& communicator, device::Stream& compute,
                float* gradients);
  std::string name() const override;
  const std::vector<Bucket>& buckets() const override { return filling_.buckets(); }
  void begin() override;
  void ready(std::size_t slice) override;
  void progress() override;
  void wait(std::size_t bucket) override;
  SliceRange updates_after(std::size_t bucket) const override {
    return filling_.updates_after(bucket, update_at_once_);
  }
  void after_update() override {}
  ExchangeState save(comm::Control&) const override { return {}; }
  void load(const ExchangeState& state) override { require_no_state(*this, state); }
  std::size_t started() const {
    return filling_.started();
  }  ///< buckets whose reduction has begun in this step

 private:
  comm::Communicator& communicator_;
  device::Stream& compute_;
  float* gradients_;
  bool update_at_once_;
  Filling filling_;
  std::vector<std::unique_ptr<device::Event>> done_;  ///< per bucket, recorded after its reduction
};

}  // namespace lockstep::reduce
