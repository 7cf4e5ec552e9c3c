#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/device/device.hpp"

namespace lockstep::comm {

/// Moves tensors between ranks. Collectives are put into the network stream in the same order on
/// all ranks; the data must not be touched until the stream has passed them.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual device::Stream& network() = 0;
  /// Collectives from here on belong to this step, which errors name. Optional.
  virtual void begin_step(std::uint64_t) {}
  /// Sums `count` floats at `data` over all ranks, in place, on the network stream. All ranks end
  /// with the same bits.
  virtual void all_reduce_sum(float* data, std::size_t count, std::string_view name) = 0;
  /// Lets collectives in flight move on (CPU) or looks for their errors (GPU); cheap, called
  /// between a step's pieces.
  virtual void progress() = 0;
};

}  // namespace lockstep::comm
