#pragma once

#include "app/commands.hpp"

namespace lockstep::app {

/// `lockstep bench data`, a command under `lockstep bench`.
Command add_bench_data(Arguments bench);

}  // namespace lockstep::app
