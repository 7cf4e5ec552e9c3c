#pragma once

#include "ports/mpi/call.hpp"

#include <memory>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

class RollCall;

/// Each makes a separate MPI communicator, so that its messages do not mix with others.
std::unique_ptr<Control> make_mpi_control(MPI_Comm comm, double deadline_s, RollCall& roll_call,
                                          const ActivityTracker& activity);
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, double deadline_s,
                                                    RollCall& roll_call,
                                                    const ActivityTracker& activity);

}  // namespace lockstep::comm
