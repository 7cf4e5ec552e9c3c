#pragma once

#include <memory>

#include "lockstep/comm/activity.hpp"

namespace lockstep::comm {

/// Shows the phases of a rank's main thread to a profiler of its device, each with the number of
/// its step, until it is destroyed: on a GPU as NVTX ranges in the domain "lockstep". Without a
/// profiler that costs next to nothing. Null where there is no such profiler.
std::unique_ptr<ActivityObserver> make_phase_ranges(const ActivityTracker& activity);

}  // namespace lockstep::comm
