#pragma once

#include <cstddef>

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
  /// Of a stage: the whole network, whose state it gathers for each checkpoint.
  const nn::Network* gathered = nullptr;
  /// How many vectors as long as the weights.
  std::size_t vectors() const { return (average ? 1U : 0U) + (second_moments ? 1U : 0U); }
};

/// What that takes, of a network whose weights take `weights` bytes; with other ranks also buffers
/// for messages. Pure.
std::size_t bytes_next_to_steps(const OtherMemory& other, std::size_t weights, bool alone);

}  // namespace lockstep::train
