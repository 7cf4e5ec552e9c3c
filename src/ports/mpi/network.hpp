#pragma once

#include "ports/mpi/call.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/elements.hpp"
#include "lockstep/device/host_stream.hpp"
#include "ports/mpi/roll_call.hpp"
#include "ports/mpi/staging.hpp"

namespace lockstep::comm {

/// What all groups of a rank share: the stream that their operations go through, and the memory
/// that these need. Operations on separate memory may overlap in time, which fills the waits for
/// answers. Operations on the same memory run one after the other.
class Network {
 public:
  using Start = std::function<std::unique_ptr<device::Pending>()>;

  device::HostStream& stream() { return stream_; }
  Staging& staging() { return staging_; }
  /// Puts an operation into the stream. `start` is called now, or when the earlier operations on
  /// `data` have finished. Operations that only read `data` do not wait for each other.
  void put(Elements data, bool writes, Start start);
  /// What `calls` puts becomes one operation of the stream, whose parts progress together.
  void together(const std::function<void()>& calls);

  std::uint64_t step = 0;  ///< that errors name; 0 before the first one

 private:
  class Turn;
  class Together;
  struct Use {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
    std::uint64_t number;  ///< of the operation, in the stream's order
  };
  bool waits(const Use& use) const;

  Staging staging_;
  std::vector<Use> uses_;  ///< of the operations that have not finished
  std::uint64_t next_ = 0;
  std::vector<std::unique_ptr<device::Pending>>* batch_ = nullptr;  ///< of together()
  device::HostStream stream_;  // last: its operations use the others
};

/// A group, as its operations see it.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  double deadline_s = 0;  ///< of silence, after which an operation fails
  RollCall& roll_call;
  std::shared_ptr<Network> network;
  std::string group;  ///< its name; empty for the world
  int rank = 0, world = 1;
  std::vector<int> members{};  ///< by rank: their ranks in MPI's world

  /// What an operation is called in errors: "step 12, bucket 3 of group rows".
  std::string phase(std::string_view name) const;
};

}  // namespace lockstep::comm
