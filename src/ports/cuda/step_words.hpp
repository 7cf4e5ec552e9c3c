#pragma once

// Why the host does not wait for a GPU's steps. Each wait would leave the device idle. So a step is
// only put into the streams. Its metrics, loss scale and norm go to a separate place in the host's
// memory, which the device writes to, and its times stay in events. The run reads them after at
// most 64 steps or a quarter of a second, at the end of an epoch, and before an audit, a checkpoint
// and a stop: the same steps on all ranks, as rank 0 proposed when they last read. The host stays
// two steps ahead and holds their batches. A device that runs as the host calls is read after each
// step.

#include <cstddef>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/owned.hpp"
#include "ports/cuda/kernels/kernels.hpp"

namespace lockstep::cuda {

/// Places in the host's memory to which the device writes what steps leave, until the host reads
/// it. **Thread safety:** none.
class StepPlaces {
 public:
  /// One place, for the host and for the device.
  struct Place {
    const StepWords* here = nullptr;
    StepWords* there = nullptr;
  };
  /// Allocates only when more places than ever before are in use.
  Place take();
  void give_back(const Place& place) { free_.push_back(place); }

 private:
  std::vector<Owned<void*, cudaFreeHost>> blocks_;
  std::vector<Place> free_;
};

/// The figures in `places`, in order: the metrics add up, the state is that of the last one.
backend::StepFigures figures_in(const std::vector<StepPlaces::Place>& places, bool has_scale);

backend::Metrics metrics_of(const DeviceMetrics& sums);

}  // namespace lockstep::cuda
