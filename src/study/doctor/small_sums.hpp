#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/waits/silent.hpp"

namespace lockstep::study {

/// Sums only the first number of each all-reduce, at the same places of a step: the ranks wait for
/// each other as they do, and the network has nothing to carry.
class SmallSums final : public comm::SilentCommunicator {
 public:
  /// `whole` must stay alive.
  explicit SmallSums(comm::Communicator& whole)
      : SilentCommunicator(whole.rank(), whole.world(), whole.network(), whole.activity),
        whole_(whole) {}
  void begin_step(std::uint64_t step) override { whole_.begin_step(step); }
  void all_reduce(comm::Elements data, comm::Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    if (data.count > 0) whole_.all_reduce(data.part(0, 1), reduction, name, stream);
  }
  void progress() override { whole_.progress(); }

 private:
  comm::Communicator& whole_;
};

}  // namespace lockstep::study
