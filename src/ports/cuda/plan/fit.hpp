#pragma once

#include <cstddef>

#include "lockstep/backend/preflight.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

/// Bytes that a program and its parameters take on the device.
backend::PreflightMemory memory_of(const nn::Network& network, const backend::ProgramSpec& spec,
                                   const ProgramPlan& plan);

/// True when so much memory of `bytes` leaves room for what comes only with the first step: the
/// code of cuDNN's kernels, NCCL's connections.
bool fits_into(const backend::PreflightMemory& memory, double bytes);

/// The largest micro-batch whose program has fast plans and fits into `bytes`, to within one part
/// in 16, because plans for every size in between would take minutes; 0: none does. Begins to look
/// at spec.batch.
std::size_t largest_batch(const nn::Network& network, const backend::ProgramSpec& spec,
                          ConvPlanner& planner, double bytes);

/// Throws InputError when a program and its parameters do not fit into the `free` of the device's
/// `total` bytes, naming what is needed and the largest batch that fits.
void require_fit(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner,
                 std::size_t free, std::size_t total);

}  // namespace lockstep::cuda
