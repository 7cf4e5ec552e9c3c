#pragma once

#include "app/commands.hpp"

namespace lockstep::app {

/// `lockstep bench inference`, a command under `lockstep bench`.
Command add_bench_inference(Arguments bench);

}  // namespace lockstep::app
