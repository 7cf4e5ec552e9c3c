#include "ports/cuda/step_words.hpp"

#include <cuda_runtime.h>

#include "ports/cuda/runtime/check.hpp"

namespace lockstep::cuda {
namespace {

constexpr std::size_t places_of_a_block = 256;

}  // namespace

StepPlaces::Place StepPlaces::take() {
  if (free_.empty()) {
    void *here = nullptr, *there = nullptr;
    check_cuda(cudaHostAlloc(&here, places_of_a_block * sizeof(StepWords), cudaHostAllocMapped),
               "cudaHostAlloc");
    blocks_.emplace_back(here);
    check_cuda(cudaHostGetDevicePointer(&there, here, 0), "cudaHostGetDevicePointer");
    for (std::size_t i = places_of_a_block; i-- > 0;)
      free_.push_back({static_cast<StepWords*>(here) + i, static_cast<StepWords*>(there) + i});
  }
  const Place place = free_.back();
  free_.pop_back();
  return place;
}

backend::Metrics metrics_of(const DeviceMetrics& sums) {
  return {.loss = sums.loss, .rows = sums.rows, .top1 = sums.top1, .top5 = sums.top5};
}

backend::StepFigures figures_in(const std::vector<StepPlaces::Place>& places, bool has_scale) {
  backend::StepFigures figures;
  for (const StepPlaces::Place& place : places) figures.metrics += metrics_of(place.here->metrics);
  const DeviceScalars& state = places.back().here->scalars;
  if (has_scale) figures.loss_scale = state.loss_scale;
  figures.clipped_norm = state.clipped_norm;
  if (state.trust.largest != 0) figures.trust = state.trust;
  return figures;
}

}  // namespace lockstep::cuda
