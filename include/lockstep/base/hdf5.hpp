#pragma once

#include <mutex>
#include <string>

namespace lockstep {

/// HDF5 is built without thread safety on many systems. Whoever calls it while other threads may do
/// the same (shards, checkpoints) holds this mutex. Not recursive.
inline std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// What HDF5 gives as the cause of the call that has just failed; empty when it says nothing. Any
/// call in between, also the release of a handle, wipes it out. The caller holds hdf5_mutex().
std::string hdf5_cause();

}  // namespace lockstep
