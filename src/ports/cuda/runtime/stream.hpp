#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::cuda {

/// Throws Error naming the call, CUDA's reason and the place when a CUDA call failed. `call`: the
/// request in a reader's words ("cudaMalloc of 12 GB").
void check_cuda(cudaError_t status, const char* call,
                const std::source_location& where = std::source_location::current());

/// Events that are free to be used again, so that a step makes none.
/// **Thread safety:** any thread.
class EventPool {
 public:
  using Handle = Owned<cudaEvent_t, cudaEventDestroy>;
  Handle take();
  void give_back(Handle event);

 private:
  std::mutex mutex_;
  std::vector<Handle> free_;
};

class CudaEvent final : public device::Event {
 public:
  CudaEvent();  ///< not yet recorded: done
  /// Takes the event from the pool, and gives it back in the end.
  explicit CudaEvent(std::shared_ptr<EventPool> pool);
  ~CudaEvent() override;
  bool done() override;
  void record(cudaStream_t stream);
  cudaEvent_t get() const { return event_.get(); }

 private:
  std::shared_ptr<EventPool> pool_;
  EventPool::Handle event_;
};

/// A CUDA stream that does not wait for the default stream. wait() and record() never block the
/// host; the events given to wait() are CudaEvents.
class CudaStream final : public device::Stream {
 public:
  enum class Priority { normal, high };
  /// Makes the stream on the calling thread's current device.
  explicit CudaStream(Priority priority = Priority::normal);
  std::unique_ptr<device::Event> record() override;
  void wait(device::Event& event) override;
  void synchronize() override;
  cudaStream_t get() const { return stream_.get(); }
  /// Whether what is put into the stream now becomes part of a CUDA graph, and does not run.
  bool recording() const;

 private:
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

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
