#pragma once

#include "ports/mpi/call.hpp"

#include <memory>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::mpi {

class RollCall;

/// `comm` has all ranks of the world, and no other messages.
std::unique_ptr<comm::Control> make_mpi_control(MPI_Comm comm, double deadline_s,
                                                RollCall& roll_call,
                                                const comm::ActivityTracker& activity);
std::unique_ptr<comm::Communicator> make_mpi_communicator(MPI_Comm comm, double deadline_s,
                                                          RollCall& roll_call,
                                                          const comm::ActivityTracker& activity);

}  // namespace lockstep::mpi
