// The calls of CUDA's runtime that the backend uses, implemented in host memory. Streams are
// queues, and conditions() decides when their work runs.
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
#include "tests/emulated/capture.hpp"
#include "tests/emulated/gpu.hpp"

using lockstep::check;
using lockstep::emulated::conditions;
using lockstep::emulated::counts;
using lockstep::emulated::Recording;
using lockstep::emulated::Streams;

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    std::shared_ptr<bool> behind;  ///< an event of another stream that precedes it
  };
  std::deque<Work> queue;
  std::shared_ptr<lockstep::emulated::Recording> recording;  ///< while it records
};

struct CUgraph_st {
  std::shared_ptr<lockstep::emulated::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<lockstep::emulated::Recording> recording;
};

namespace {

struct Gpu {
  std::map<const std::byte*, std::size_t> allocated, pinned;
  std::set<cudaStream_t> streams;
  std::size_t used = 0;
  cudaError_t last = cudaSuccess;
};
Gpu& gpu() {
  static Gpu gpu;
  return gpu;
}

bool within(const std::map<const std::byte*, std::size_t>& ranges, const void* data,
            std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  auto range = ranges.upper_bound(from);
  if (range == ranges.begin()) return false;
  --range;
  return from + bytes <= range->first + range->second;
}

bool one_step(CUstream_st& stream) {
  if (stream.queue.empty()) return false;
  CUstream_st::Work& next = stream.queue.front();
  if (next.behind && !*next.behind) return false;
  const CUstream_st::Work work = std::move(next);
  stream.queue.pop_front();
  if (work.run) work.run();
  return true;
}

/// Runs all streams but `last`, until none can continue.
void others_go(cudaStream_t last) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const cudaStream_t stream : gpu().streams)
      if (stream != last) moved = one_step(*stream) || moved;
  }
}

/// Runs the work that `wanted` says is missing, in one stream and those that it waits for.
template <class Done>
void go_until(cudaStream_t stream, const Done& done) {
  if (conditions().streams == Streams::others_first) others_go(stream);
  while (!done()) {
    if (one_step(*stream)) continue;
    bool moved = false;
    for (const cudaStream_t other : gpu().streams) {
      if (other == stream) continue;
      moved = one_step(*other);
      if (moved) break;
    }
    check(moved, "streams wait for one another, or for an event that is never recorded");
  }
}

void finish(cudaStream_t stream) {
  go_until(stream, [&] { return stream->queue.empty(); });
}

void finish_all() {
  for (const cudaStream_t stream : gpu().streams) finish(stream);
}

void put(cudaStream_t stream, CUstream_st::Work work) {
  check(gpu().streams.contains(stream),
        "work for a stream that does not exist, or for the default one");
  if (stream->recording) return stream->recording->put(stream, std::move(work.run));
  ++counts().calls;
  stream->queue.push_back(std::move(work));
  if (conditions().streams == Streams::eager) finish(stream);
}

cudaError_t failed(cudaError_t error) { return gpu().last = error; }

/// What a stream that records cannot do.
cudaError_t spoiled(cudaStream_t stream, cudaError_t error) {
  stream->recording->spoil();
  return failed(error);
}

}  // namespace

namespace lockstep::emulated {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  put(stream, {std::move(work), {}});
}

bool on_device(const void* data, std::size_t bytes) { return within(gpu().allocated, data, bytes); }

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
  *count = conditions().devices;
  if (conditions().driver < CUDART_VERSION) return failed(cudaErrorInsufficientDriver);
  return conditions().devices == 0 ? failed(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
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
cudaError_t cudaGetLastError() { return std::exchange(gpu().last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  ++counts().waits;
  if (gpu().used + bytes > conditions().memory) return failed(cudaErrorMemoryAllocation);
  check(posix_memalign(memory, 256, bytes) == 0, "no memory on the host");
  std::memset(*memory, 0xff, bytes);  // a NaN in every type
  gpu().allocated[static_cast<std::byte*>(*memory)] = bytes;
  gpu().used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  ++counts().waits;
  finish_all();
  const auto found = gpu().allocated.find(static_cast<std::byte*>(memory));
  check(found != gpu().allocated.end(), "cudaFree of what was not allocated");
  gpu().used -= found->second;
  gpu().allocated.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = conditions().memory;
  *free = *total - gpu().used;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  gpu().pinned[static_cast<std::byte*>(memory)] = bytes;
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
  gpu().pinned.erase(static_cast<std::byte*>(memory));
  return cudaSuccess;
}

// A copy from pinned memory reads when its turn comes. From other memory the driver takes the bytes
// before the call returns; to other memory the call returns when they have arrived. Within the
// device only the stream decides.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  check(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost ||
            kind == cudaMemcpyDeviceToDevice,
        "a copy must have a direction");
  check(on_device(to_device ? to : from, bytes), "a copy beyond an allocation on the device");
  const void* host = to_device ? from : to;
  if (stream->recording && kind != cudaMemcpyDeviceToDevice && !within(gpu().pinned, host, bytes))
    return spoiled(stream, cudaErrorStreamCaptureUnsupported);
  if (kind == cudaMemcpyDeviceToDevice) {
    check(on_device(from, bytes), "a copy from beyond an allocation on the device");
    put(stream, {[=] { std::memcpy(to, from, bytes); }, {}});
  } else if (within(gpu().pinned, host, bytes)) {
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
  check(on_device(to, bytes), "a memset beyond an allocation on the device");
  put(stream, {[=] { std::memset(to, value, bytes); }, {}});
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  gpu().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  finish(stream);
  gpu().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->recording) return spoiled(stream, cudaErrorStreamCaptureUnsupported);
  ++counts().waits;
  finish(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
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
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
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
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  if (!stream->recording) return failed(cudaErrorIllegalState);
  stream->recording->stamp(stream, event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->recording) return failed(cudaErrorCapturedEvent);
  // A caller that polls will poll again: meanwhile the streams continue.
  constexpr int patience = 3;
  if (!*event->done && ++event->asked > patience) finish_all();
  return *event->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->recording) return failed(cudaErrorCapturedEvent);
  ++counts().waits;
  if (!*event->done) finish_all();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (from->recording || to->recording) return failed(cudaErrorCapturedEvent);
  *ms = 1;
  return *from->done && *to->done ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recording) return failed(cudaErrorIllegalState);
  stream->recording = std::make_shared<Recording>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
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
                                          unsigned long long) {
  *made = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
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
