#pragma once

namespace lockstep::cuda {

/// Whether our kernels can wait for the one before them, and so may be launched before it has
/// ended. `kernel`: any of them; the first one asked about decides for all, which are compiled for
/// the same architectures.
bool may_start_early(const void* kernel);

}  // namespace lockstep::cuda
