#include "ports/cuda/runtime/stream.hpp"

#include "ports/cuda/runtime/check.hpp"

namespace lockstep::cuda {

CudaEvent::CudaEvent() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  event_ = decltype(event_)(event);
}

bool CudaEvent::done() {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "cudaEventQuery");
  return true;
}

void CudaEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

CudaStream::CudaStream(Priority priority) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
             "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == Priority::high ? greatest : least),
             "cudaStreamCreateWithPriority");
  stream_ = decltype(stream_)(stream);
}

std::unique_ptr<device::Event> CudaStream::record() {
  auto event = std::make_unique<CudaEvent>();
  event->record(get());
  return event;
}

void CudaStream::wait(device::Event& event) {
  check_cuda(cudaStreamWaitEvent(get(), static_cast<CudaEvent&>(event).get(), 0),
             "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
}

}  // namespace lockstep::cuda
