// The calls of CUDA's runtime that the backend uses, implemented in host memory.
#include <cuda_runtime.h>
#include <cudnn.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/cuda/streams.hpp"

using lockstep::check;
using lockstep::emulated::conditions;
using lockstep::emulated::counts;
using lockstep::emulated::device_of_thread;
using lockstep::emulated::finish;
using lockstep::emulated::finish_all;
using lockstep::emulated::gpus;
using lockstep::emulated::Lock;
using lockstep::emulated::put;
using lockstep::emulated::Recording;
using lockstep::emulated::run_until;

struct CUgraph_st {
  std::shared_ptr<lockstep::emulated::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<lockstep::emulated::Recording> recording;
};

namespace {

bool within(const std::map<const std::byte*, std::size_t>& ranges, const void* data,
            std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  auto range = ranges.upper_bound(from);
  if (range == ranges.begin()) return false;
  --range;
  return from + bytes <= range->first + range->second;
}

cudaError_t failed(cudaError_t error) { return gpus().last = error; }

/// What a stream that records cannot do.
cudaError_t spoiled(cudaStream_t stream, cudaError_t error) {
  stream->recording->spoil();
  return failed(error);
}

}  // namespace

namespace lockstep::emulated {

bool on_device(const void* data, std::size_t bytes) {
  const Lock lock;
  return within(gpus().allocated, data, bytes);
}

}  // namespace lockstep::emulated

using lockstep::emulated::on_device;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = conditions().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const Lock lock;
  *count = conditions().devices;
  if (conditions().driver < CUDART_VERSION) return failed(cudaErrorInsufficientDriver);
  return conditions().devices == 0 ? failed(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  device_of_thread() = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->major = conditions().major;
  properties->totalGlobalMem = conditions().memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::strncpy(id, "0000:01:00.0", static_cast<std::size_t>(size));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const Lock lock;
  return std::exchange(gpus().last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock;
  ++counts().waits;
  if (gpus().used + bytes > conditions().memory) return failed(cudaErrorMemoryAllocation);
  check(posix_memalign(memory, 256, bytes) == 0, "no memory on the host");
  std::memset(*memory, 0xff, bytes);  // a NaN in every type
  gpus().allocated[static_cast<std::byte*>(*memory)] = bytes;
  gpus().used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Lock lock;
  if (!memory) return cudaSuccess;
  ++counts().waits;
  finish_all();
  const auto found = gpus().allocated.find(static_cast<std::byte*>(memory));
  check(found != gpus().allocated.end(), "cudaFree of what was not allocated");
  gpus().used -= found->second;
  gpus().allocated.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock;
  *total = conditions().memory;
  *free = *total - gpus().used;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  const Lock lock;
  gpus().pinned[static_cast<std::byte*>(memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  ++counts().waits;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** there, void* here, unsigned) {
  *there = here;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const Lock lock;
  gpus().pinned.erase(static_cast<std::byte*>(memory));
  return cudaSuccess;
}

// A copy from pinned memory reads when its turn comes. From other memory the driver takes the bytes
// before the call returns; to other memory the call returns when they have arrived. Within the
// device only the stream decides.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock;
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  check(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost ||
            kind == cudaMemcpyDeviceToDevice,
        "a copy must have a direction");
  check(on_device(to_device ? to : from, bytes), "a copy beyond an allocation on the device");
  const void* host = to_device ? from : to;
  if (stream->recording && kind != cudaMemcpyDeviceToDevice && !within(gpus().pinned, host, bytes))
    return spoiled(stream, cudaErrorStreamCaptureUnsupported);
  if (kind == cudaMemcpyDeviceToDevice) {
    check(on_device(from, bytes), "a copy from beyond an allocation on the device");
    put(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
  } else if (within(gpus().pinned, host, bytes)) {
    put(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
  } else if (to_device) {
    ++counts().waits;
    const auto* data = static_cast<const std::byte*>(from);
    const auto taken = std::make_shared<std::vector<std::byte>>(data, data + bytes);
    put(stream, {[=] { std::memcpy(to, taken->data(), bytes); }, {}});
  } else {
    ++counts().waits;
    put(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
    finish(stream);
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock;
  check(on_device(to, bytes), "a memset beyond an allocation on the device");
  put(stream, {[=] { std::memset(to, value, bytes); }, {}});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const Lock lock;
  *stream = new CUstream_st;
  (*stream)->device = device_of_thread();
  gpus().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock;
  finish(stream);
  gpus().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock;
  if (stream->recording) return spoiled(stream, cudaErrorStreamCaptureUnsupported);
  ++counts().waits;
  finish(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock;
  if (event->recording) {
    if (event->recording->origin()->recording != event->recording)  // it is over
      return failed(cudaErrorCapturedEvent);
    stream->recording = event->recording;
    stream->recording->follow(stream, event->point);
    return cudaSuccess;
  }
  if (stream->recording) return spoiled(stream, cudaErrorStreamCaptureIsolation);
  put(stream, {{}, event->done});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock;
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock;
  event->recording = stream->recording;
  if (stream->recording) {
    event->point = stream->recording->end_of(stream);
    return cudaSuccess;
  }
  event->done = std::make_shared<bool>(false);
  event->asked = 0;
  put(stream, {[done = event->done] { *done = true; }, {}});
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const Lock lock;
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  if (!stream->recording) return failed(cudaErrorIllegalState);
  stream->recording->stamp(stream, event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock;
  if (event->recording) return failed(cudaErrorCapturedEvent);
  // A caller that polls will poll again: meanwhile the streams continue.
  constexpr int patience = 3;
  if (!*event->done && ++event->asked > patience) run_until([&] { return *event->done; }, false);
  return *event->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock;
  if (event->recording) return failed(cudaErrorCapturedEvent);
  ++counts().waits;
  run_until([&] { return *event->done; }, true);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const Lock lock;
  if (from->recording || to->recording) return failed(cudaErrorCapturedEvent);
  *ms = 1;
  return *from->done && *to->done ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
  std::swap(*mode, of_thread);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock;
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock;
  if (stream->recording) return failed(cudaErrorIllegalState);
  stream->recording = std::make_shared<Recording>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  *graph = nullptr;
  const std::shared_ptr<Recording> recording = stream->recording;
  if (!recording) return failed(cudaErrorIllegalState);
  if (recording->origin() != stream) return failed(cudaErrorStreamCaptureUnmatched);
  for (const cudaStream_t one : recording->streams()) one->recording.reset();
  const cudaError_t verdict = recording->judge();
  if (verdict != cudaSuccess) return failed(verdict);
  ++counts().recorded;
  *graph = new CUgraph_st{recording};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long flags) {
  check(flags == cudaGraphInstantiateFlagUseNodePriority,
        "a graph forgets its streams' priorities");
  *made = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const Lock lock;
  check(!stream->recording, "a graph is launched into a stream that records");
  ++counts().launches;
  graph->recording->begin_launch();
  put(stream, {[recording = graph->recording] { recording->run(); }, {}});
  return cudaSuccess;
}

std::size_t cudnnGetVersion() { return conditions().cudnn; }
ncclResult_t ncclGetVersion(int* version) {
  *version = conditions().nccl;
  return ncclSuccess;
}

}  // extern "C"
