#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::test {

struct DelayedAverageSpec {
  std::uint64_t period = 1;  ///< steps between two averages
  bool late = true;          ///< the averaged difference is applied one step later
  int unloadable = -1;       ///< the rank on which no state can be loaded
};

/// An exchange that does not keep ranks equal. Each rank steps by its own gradients. Every `period`
/// steps the ranks average their weights and running statistics: the statistics at once, the
/// learned weights as a difference that is applied a step later, so that the next step hides the
/// sum (overlapped local SGD). Momentum stays each rank's own.
class DelayedAverage final : public reduce::Exchange {
 public:
  DelayedAverage(const DelayedAverageSpec& how, reduce::ExchangeSpec spec,
                 const reduce::ExchangeParts& parts);
  ~DelayedAverage() override;
  static reduce::MakeExchange maker(const DelayedAverageSpec& how);

  std::string name() const override { return "delayed-average"; }
  std::string note() const override;
  bool repeats() const override { return false; }
  const std::vector<reduce::Bucket>& buckets() const override { return spec_.buckets; }
  void begin() override;
  void ready(std::size_t slice) override;
  void progress() override { parts_.communicator.progress(); }
  void wait(std::size_t bucket) override;
  reduce::SliceRange updates_after(std::size_t bucket) const override;
  const float* largest_gradient() override;
  void after_update() override;
  void settle() override;
  void unsettle() override;
  reduce::StateOutline outline() const override;
  void save(comm::Control& control, const reduce::TakeBytes& take) const override;
  void begin_at(std::uint64_t) override { throw Error("begins with other exchanges only"); }
  std::string load(const reduce::SavedState& state) override;

 private:
  /// A buffer of a whole part of the arena.
  struct Copy {
    backend::Part part;
    backend::DeviceMemory memory;
  };
  std::size_t world() const { return static_cast<std::size_t>(parts_.communicator.world()); }
  const nn::ArenaLayout& layout() const { return parts_.parameters.layout(); }
  backend::Vector of(backend::Part part, std::size_t first, std::size_t count) const;
  backend::Vector learned(backend::Part part) const { return of(part, 0, layout().learned_size); }
  backend::Vector in(const backend::DeviceMemory& memory, std::size_t count) const;
  /// Adds over the ranks and divides, on the network stream; the compute stream waits for it.
  void average(const backend::Vector& values, const char* what);
  void start_sum(const backend::Vector& values, const char* what);
  void apply_difference();
  std::vector<reduce::ArenaPart> saved() const;

  DelayedAverageSpec how_;
  reduce::ExchangeSpec spec_;
  reduce::ExchangeParts parts_;
  backend::Vectors& vectors_;
  backend::DeviceMemory sent_, sum_, largest_;
  std::vector<Copy> own_;  ///< while settled
  std::vector<bool> final_;
  std::uint64_t steps_ = 0;
  bool pending_ = false;  ///< a difference is to be applied
  std::unique_ptr<device::Event> arrived_;
  bool settled_ = false;
};

}  // namespace lockstep::test
