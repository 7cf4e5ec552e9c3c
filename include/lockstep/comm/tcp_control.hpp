#pragma once

#include <memory>

#include "lockstep/comm/control.hpp"
#include "lockstep/sys/rendezvous.hpp"

namespace lockstep::comm {

/// Control over TCP, for ranks that MPI does not connect: enough to agree and to exchange NCCL's
/// id. All ranks call it; rank 0 listens and leaves word at the place, the others come. Peers of
/// another job, of an earlier start, without the secret or with a rank that is taken are refused
/// and do not disturb the rest. Throws Error when not all came within the deadline: on rank 0 with
/// the missing ranks and the nodes from which too few came; InputError when the place cannot be
/// used. Later calls throw Error naming a rank that has gone.
std::unique_ptr<Control> make_tcp_control(const sys::MeetingPlace& place, const sys::RankInfo& self,
                                          double deadline_s);

}  // namespace lockstep::comm
