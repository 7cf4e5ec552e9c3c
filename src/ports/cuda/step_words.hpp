#pragma once

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
