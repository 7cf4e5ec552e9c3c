#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <map>

#include "lockstep/base/owned.hpp"
#include "lockstep/device/device.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

/// Records work as a CUDA graph. The first run of a key calls the work: libraries load their
/// kernels, NCCL connects, tables are sent. The second one records it, with all other streams that
/// wait for the compute stream inside of it and for which the compute stream waits in turn. From
/// then on a run is one launch, and its memory must stay where it is.
class GraphRepeater final : public device::Repeater {
 public:
  explicit GraphRepeater(CudaStream& compute) : compute_(compute) {}
  bool run(std::uint64_t key, const std::function<void()>& work) override;

 private:
  using Graph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
  Graph record(const std::function<void()>& work);

  CudaStream& compute_;
  std::map<std::uint64_t, Graph> graphs_;  ///< empty: the work was called once
};

}  // namespace lockstep::cuda
