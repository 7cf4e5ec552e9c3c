#pragma once

#include "app/cli/command_line.hpp"

namespace lockstep::app {

/// The options --meet, --rank, --world and --token-file of commands whose ranks meet. They stand
/// for LOCKSTEP_MEET, LOCKSTEP_RANK, LOCKSTEP_WORLD and LOCKSTEP_TOKEN_FILE.
void add_meeting(Arguments app);

/// Sets these variables from the options of the line that was parsed last, so that each who asks
/// for this process's identity gets one answer. Call it before any command runs.
void take_meeting();

}  // namespace lockstep::app
