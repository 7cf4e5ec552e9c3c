#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/backend/memory_plan.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/lifetimes.hpp"

namespace lockstep::cpu {

/// The units at the network's cut points whose values can be kept, in order.
std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units);

/// The places of all buffers in one block, for one choice of what is made again. With several
/// slots, what a micro-batch keeps from forward to backward has a place in each slot, after what
/// all share.
class Placement {
 public:
  Placement(const std::vector<BufferRequest>& requests, const Lifetimes& lifetimes,
            std::size_t slots);
  std::size_t offset(std::size_t request, bool after_forward, std::size_t slot) const;
  std::size_t total() const { return shared_.total() + slots_ * slot_.total(); }
  std::size_t without_reuse() const {
    return shared_.without_reuse() + slots_ * slot_.without_reuse();
  }

 private:
  struct Place {
    bool in_slot = false;
    std::size_t buffer = 0;
  };
  std::size_t slots_;
  backend::MemoryPlanner shared_, slot_;
  std::vector<Place> places_[2];  // by request
};

/// What a program's memory has to keep to, in bytes.
struct MemoryBounds {
  std::size_t fixed = 0;      ///< parameters and workspace, whatever is made again
  std::size_t available = 0;  ///< of the block that other programs already have; 0: there is none
};

/// Chooses what is made again, as `spec.recompute` says, and places all buffers. Leaves that choice
/// in `lifetimes`. Throws InputError when the limit is too small, naming the smallest possible one,
/// or when the network has fewer segments than asked for.
Placement place_buffers(const nn::Network& network, const backend::ProgramSpec& spec,
                        const std::vector<Unit>& units, const std::vector<BufferRequest>& requests,
                        const MemoryBounds& bounds, Lifetimes& lifetimes);

/// What backward makes again, as a share of all of forward's operations.
double share_made_again(const nn::Network& network, const std::vector<Unit>& units,
                        const Lifetimes& lifetimes);

}  // namespace lockstep::cpu
