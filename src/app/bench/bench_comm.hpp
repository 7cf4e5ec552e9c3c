#pragma once

#include "app/commands.hpp"

namespace lockstep::app {

/// `lockstep bench comm`, a command under `lockstep bench`.
Command add_bench_comm(Arguments bench);

}  // namespace lockstep::app
