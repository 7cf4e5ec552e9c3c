#pragma once

#include <mutex>

namespace lockstep {

/// HDF5 is built without thread safety on many systems. Whoever calls it while other threads may do
/// the same (shards, checkpoints) holds this mutex. Not recursive.
inline std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace lockstep
