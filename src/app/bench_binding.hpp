#pragma once

#include "commands.hpp"

namespace lockstep::app {

/// `lockstep bench binding`, below `lockstep bench`.
Command add_bench_binding(CLI::App& bench);

}  // namespace lockstep::app
