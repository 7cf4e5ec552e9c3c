#pragma once

#include "ports/mpi/call.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/network.hpp"
#include "ports/mpi/roll_call.hpp"

namespace lockstep::comm {

/// A group, as its operations see it.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;  ///< of all ranks of MPI's world, numbered as there
  double deadline_s = 0;          ///< of silence, after which an operation fails
  RollCall& roll_call;
  std::shared_ptr<HostNetwork> network;
  std::string group;  ///< its name; empty for the world
  int rank = 0, world = 1;
  std::vector<int> members{};  ///< by rank: their ranks in MPI's world

  /// The number of the group's `member` for calls of MPI.
  int in_mpi(int member) const { return members[static_cast<std::size_t>(member)]; }
  std::string phase(std::string_view name) const { return network->phase(name, group); }
};

}  // namespace lockstep::comm
