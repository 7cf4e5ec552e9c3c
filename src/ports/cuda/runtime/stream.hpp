#pragma once

#include <cuda_runtime.h>

#include <string>

#include "lockstep/base/owned.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::cuda {

class CudaEvent final : public device::Event {
 public:
  CudaEvent();  ///< not yet recorded: done
  bool done() override;
  void record(cudaStream_t stream);
  cudaEvent_t get() const { return event_.get(); }

 private:
  Owned<cudaEvent_t, cudaEventDestroy> event_;
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

 private:
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

}  // namespace lockstep::cuda
