// Why a recorded step is recorded by micro-batch. A CUDA graph (`--graph true`) repeats the same
// operations on the same memory. So what differs from step to step is outside of it or in device
// memory: the copy of a batch comes before it, rates and scales are read from memory, and each of
// the two places of a batch has a separate recording. Then the host makes one call for each
// micro-batch, and the last one includes all reductions and updates. A batch with fewer rows and
// validation run call by call. `train` gives the work to a `device::Repeater` and does not know
// whether it is recorded.
#include "ports/cuda/runtime/stream.hpp"

#include <fmt/format.h>

#include <exception>

#include "lockstep/base/error.hpp"
#include "ports/cuda/runtime/range.hpp"

namespace lockstep::cuda {

bool GraphRepeater::run(std::uint64_t key, const std::function<void()>& work) {
  const auto [known, is_new] = graphs_.try_emplace(key);
  if (is_new) {
    work();
    return false;
  }
  if (!known->second) known->second = record(work);
  const Range range("recorded step");
  check_cuda(cudaGraphLaunch(known->second.get(), compute_.get()), "cudaGraphLaunch");
  return true;
}

GraphRepeater::Graph GraphRepeater::record(const std::function<void()>& work) {
  // Relaxed: other threads call CUDA meanwhile: the watch, the loader, NCCL.
  check_cuda(cudaStreamBeginCapture(compute_.get(), cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (const std::exception& failure) {
    cudaStreamEndCapture(compute_.get(), &recorded);
    if (recorded) cudaGraphDestroy(recorded);
    cudaGetLastError();  // the capture's own, which says less
    throw Error(fmt::format("while a step was recorded as a CUDA graph (graph = true): {}",
                            failure.what()));
  }
  check_cuda(cudaStreamEndCapture(compute_.get(), &recorded),
             "recording a step as a CUDA graph (graph = true): cudaStreamEndCapture");
  const Owned<cudaGraph_t, cudaGraphDestroy> graph(recorded);
  cudaGraphExec_t made = nullptr;
  // Else all kernels would have the priority of the stream that launches the graph, and NCCL's
  // would wait for whole kernels that compute.
  check_cuda(
      cudaGraphInstantiateWithFlags(&made, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
      "recording a step as a CUDA graph (graph = true): cudaGraphInstantiateWithFlags");
  return Graph(made);
}

}  // namespace lockstep::cuda
