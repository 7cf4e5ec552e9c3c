#pragma once

#include <cstddef>
#include <span>

#include "lockstep/backend/program.hpp"
#include "lockstep/backend/winograd.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

/// Measures each pass of each 3 x 3 convolution of a training program both ways, on all lanes and
/// in the program's own chunks, the preparation of the weights included. Lists the passes that
/// Winograd's algorithm makes at least a tenth faster.
backend::Winograd measure_winograd(const nn::Network& network, const backend::ProgramSpec& spec,
                                   Team& team, std::size_t chunk_bytes);

/// What a process that runs these programs has in memory, but for parameters, values and images:
/// itself, the libraries' generated code, and what of their scratch they touch. Bytes.
std::size_t measure_memory(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                           Team& team, std::size_t chunk_bytes);

}  // namespace lockstep::cpu
