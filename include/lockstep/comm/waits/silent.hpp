#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// Moves nothing: every verb returns at once and leaves the data as it is, as a group of one does.
/// With more ranks, it shows what a step takes when no rank waits for another.
class SilentCommunicator : public Communicator {
 public:
  /// `network` must stay alive.
  SilentCommunicator(int rank, int world, device::Stream& network,
                     const ActivityTracker& of_rank = {})
      : Communicator(of_rank), rank_(rank), world_(world), network_(network) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  device::Stream& network() override { return network_; }
  /// It cannot ask the others for their colours: the new group has this rank alone.
  std::unique_ptr<Communicator> split(std::optional<int> colour, int,
                                      std::string_view name) override {
    if (!colour) return nullptr;
    require(*colour >= 0, std::string(name) + ": a colour is 0 or more");
    return std::make_unique<SilentCommunicator>(0, 1, network_, activity);
  }
  void all_reduce(Elements, Reduction, std::string_view, device::Stream&) override {}
  void reduce_scatter(Elements, Reduction, std::string_view, device::Stream&) override {}
  void all_gather(Elements, std::string_view, device::Stream&) override {}
  void broadcast(Elements, int, std::string_view, device::Stream&) override {}
  void send(Elements, int, std::string_view, device::Stream&) override {}
  void receive(Elements, int, std::string_view, device::Stream&) override {}
  void progress() override {}

 private:
  int rank_, world_;
  device::Stream& network_;
};

}  // namespace lockstep::comm
