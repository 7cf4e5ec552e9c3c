#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/backend/placement.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/lifetimes.hpp"

namespace lockstep::cpu {

/// The units at the network's cut points whose values can be kept, in order.
std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units);

/// Chooses what is made again, as `spec.recompute` says, and places all buffers. Leaves that choice
/// in `lifetimes`. Throws like backend::choose_placement().
backend::Placement place_buffers(const nn::Network& network, const backend::ProgramSpec& spec,
                                 const std::vector<Unit>& units,
                                 const std::vector<BufferRequest>& requests,
                                 const backend::MemoryBounds& bounds, Lifetimes& lifetimes);

/// What backward makes again, as a share of all of forward's operations.
double share_made_again(const nn::Network& network, const std::vector<Unit>& units,
                        const Lifetimes& lifetimes);

struct Context;
struct ValuePlace;

/// The places of all units' values in evaluation; a unit that is in place has that of its skip.
/// Reserves the memory in `context`, whose regions are known.
std::vector<ValuePlace> place_values(Context& context);

}  // namespace lockstep::cpu
