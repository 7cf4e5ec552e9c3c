#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/device/device.hpp"

namespace lockstep::comm {

/// Moves tensors between ranks. All ranks put collectives into the network stream in the same
/// order. The data must not be touched until the stream has finished them.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual device::Stream& network() = 0;
  /// Later collectives belong to this step, which errors name. Optional.
  virtual void begin_step(std::uint64_t) {}
  /// Sums `count` floats at `data` over all ranks, in place, on the network stream. All ranks end
  /// with the same bits.
  virtual void all_reduce_sum(float* data, std::size_t count, std::string_view name) = 0;
  /// Advances collectives in flight (CPU) or checks them for errors (GPU). Cheap: called between a
  /// step's pieces.
  virtual void progress() = 0;
};

}  // namespace lockstep::comm
