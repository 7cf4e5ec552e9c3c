#pragma once

#include <cstddef>
#include <span>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/recompute.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::train {

/// What a rank's process keeps in memory next to a step's parameters, values and scratch.
struct OtherMemory {
  std::size_t loader_bytes = 0;  ///< of the loader's batches
  bool average = false;          ///< of all weights
  bool second_moments = false;   ///< of all gradients
  std::size_t update_bytes = 0;
  std::size_t exchange_bytes = 0;
  bool checkpoints = false;  ///< rank 0 makes them in memory, while no step runs
};

/// A limit holds for the whole process: this tells the planner how much of it other things need,
/// the same for all ranks. It runs `programs` once, those that the run will have, and sees what the
/// process then has in memory. Call it when all but the parameters and the loader is there. Does
/// nothing without a limit, and for a GPU, whose memory holds nothing else of this process.
/// Collective.
void count_process(backend::Recompute& recompute, const nn::Network& network,
                   std::span<const backend::ProgramSpec> programs, backend::Backend& backend,
                   const OtherMemory& other, comm::Control& control);

/// How many copies of the state, `bytes` each, a limit leaves room for in addition to a step of
/// this plan; `most` at most, and where count_process() counts nothing.
std::size_t copies_within(const backend::Recompute& recompute, const backend::MemoryPlan& plan,
                          const nn::ArenaLayout& layout, std::size_t bytes, std::size_t most);

}  // namespace lockstep::train
