#pragma once

#include <cstddef>

#include "cuda/plan.hpp"
#include "lockstep/backend/preflight.hpp"

namespace lockstep::cuda {

/// Of a GPU's memory; the driver and the libraries' code keep the rest.
constexpr double usable = 0.95;

/// Bytes that a program and its parameters take on the device.
PreflightMemory memory_of(const nn::Network& network, const ProgramSpec& spec,
                          const ProgramPlan& plan);

/// The largest micro-batch whose program has plans and takes at most `bytes`, to within one part in
/// 16, because plans for every size in between would take minutes; 0: none does. Begins to look at
/// spec.batch.
std::size_t largest_batch(const nn::Network& network, const ProgramSpec& spec, ConvPlanner& planner,
                          double bytes);

/// Throws InputError when a program and its parameters take more than the `free` of the device's
/// `total` bytes, naming what is needed and the largest batch that fits.
void require_fit(const nn::Network& network, const ProgramSpec& spec, ConvPlanner& planner,
                 std::size_t free, std::size_t total);

}  // namespace lockstep::cuda
