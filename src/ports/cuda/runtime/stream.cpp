#include "ports/cuda/runtime/stream.hpp"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

namespace {

/// What can be done about it, if that is known.
const char* advice_on(cudaError_t status) {
  switch (status) {
    case cudaErrorNoKernelImageForDevice:
      return ": lockstep was built for other GPUs: build it where this one is, or with "
             "CUDA_ARCHS and its compute capability (90 for 9.0)";
    case cudaErrorECCUncorrectable:
      return ": its memory has an error that cannot be corrected: leave the node out (--exclude), "
             "and tell the centre (nvidia-smi -q -d ECC)";
    case cudaErrorSystemNotReady:
      return ": the GPUs' switches are not set up: the node's nvidia-fabricmanager does not run";
    case cudaErrorDevicesUnavailable:
      return ": another process has it for itself: start one rank for each GPU, and look at "
             "nvidia-smi -q -d COMPUTE";
    default:
      return "";
  }
}

}  // namespace

void check_cuda(cudaError_t status, const char* call, const std::source_location& where) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(fmt::format("{}: {} ({}) [{}:{}]{}", call, cudaGetErrorString(status),
                          cudaGetErrorName(status), where.file_name(), where.line(),
                          advice_on(status)));
}

namespace {

EventPool::Handle new_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return EventPool::Handle(event);
}

}  // namespace

EventPool::Handle EventPool::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      Handle event = std::move(free_.back());
      free_.pop_back();
      return event;
    }
  }
  return new_event();
}

void EventPool::give_back(Handle event) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(std::move(event));
}

CudaEvent::CudaEvent() : event_(new_event()) {}

CudaEvent::CudaEvent(std::shared_ptr<EventPool> pool)
    : pool_(std::move(pool)), event_(pool_->take()) {}

// A stream that waits for the event took note of it when it was told to: recording it again for
// something else does not change that.
CudaEvent::~CudaEvent() {
  if (pool_) pool_->give_back(std::move(event_));
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
  auto event = std::make_unique<CudaEvent>(events_);
  event->record(get());
  return event;
}

bool CudaStream::recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(get(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void CudaStream::wait(device::Event& event) {
  check_cuda(cudaStreamWaitEvent(get(), static_cast<CudaEvent&>(event).get(), 0),
             "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
}

}  // namespace lockstep::cuda
