#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// One rank's part of a collective, from its call to its end on this rank.
struct WatchedCollective {
  std::string verb;  ///< as NCCL calls it: "AllReduce_Sum_f32", "AllGather", "SendRecv"
  std::string name;  ///< of what is moved: "bucket 3"
  std::size_t bytes = 0;
  double began_us = 0, ended_us = 0;  ///< by CollectiveObserver::clock_us()
};

/// Sees the collectives of a rank. **Thread safety:** none; called on the communicator's thread.
class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;
  /// Whether the next collective is watched; the others cost one call of this.
  virtual bool watches() const = 0;
  virtual double clock_us() const = 0;
  /// In the order of the stream. Must not throw.
  virtual void ended(WatchedCollective one) = 0;
};

/// All verbs of `below`, whose collectives `observer` sees. An end is seen when the thread next
/// polls: at once where it waits for the network stream, else in the next progress(). For a network
/// stream on the host: a GPU's runs later than the calls. Both must outlive it.
std::unique_ptr<Communicator> watch_collectives(Communicator& below, CollectiveObserver& observer);

}  // namespace lockstep::comm
