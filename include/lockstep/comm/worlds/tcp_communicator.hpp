#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {

struct TcpSpec {
  std::string host;         ///< this rank's: ranks of one host connect through its loopback
  double deadline_s = 120;  ///< of silence, after which an operation fails
  /// Asked when an operation does not end. With it, a rank that has gone is left to the heartbeats
  /// for some seconds, which know more and end this process.
  FindAbsence find_absence = {};
};

/// Collectives between CPUs over TCP, for ranks that MPI does not connect. Collective over
/// `control`. Sums have the bits of those over MPI. Host streams advance it; it has no thread.
///
/// Two ranks connect when one of them first needs the other. Collectives are direct, so in a world
/// of P ranks each one soon has P - 1 connections, and sends that many messages for each piece of a
/// gradient: meant for some hundred ranks. Only ranks that know the secret of this start, which
/// goes through `control`, may connect. Data is neither encrypted nor signed.
///
/// Throws MissingRanks when a rank that is needed has gone and no heartbeat tells more. Throws
/// InputError when the process may not open enough connections.
std::unique_ptr<Communicator> make_tcp_communicator(Control& control, const TcpSpec& spec);

}  // namespace lockstep::comm
