#pragma once

#include <cstddef>

#include "lockstep/backend/preflight.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// Bytes that a program and its parameters take on the device.
backend::PreflightMemory memory_of(const nn::Network& network, const backend::ProgramSpec& spec,
                                   const ProgramPlan& plan);

/// True when this much memory, out of `bytes`, leaves room for what is added in the first step: the
/// code of cuDNN's kernels, NCCL's connections.
bool fits_into(const backend::PreflightMemory& memory, double bytes);

/// The largest micro-batch whose program has fast plans and fits into `bytes`; 0 if there is none.
/// Exact to one part in 16, because planning every size in between would take minutes. The search
/// starts at spec.batch.
std::size_t largest_batch(const nn::Network& network, const backend::ProgramSpec& spec,
                          ConvPlanner& planner, double bytes);

/// Throws InputError when a program and its parameters do not fit into the `free` of the device's
/// `total` bytes, naming the memory needed and the largest batch that fits.
void require_fit(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner,
                 std::size_t free, std::size_t total);

}  // namespace lockstep::cuda
