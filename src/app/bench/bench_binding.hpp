#pragma once

#include "app/commands.hpp"

namespace lockstep::app {

/// `lockstep bench binding`, a command under `lockstep bench`.
Command add_bench_binding(Arguments bench);

}  // namespace lockstep::app
