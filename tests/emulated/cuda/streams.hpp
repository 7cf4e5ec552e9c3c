#pragma once

// Streams of the emulated GPUs: queues of work. conditions() decides when it runs.

#include <cuda_runtime.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tests/emulated/cuda/capture.hpp"

namespace lockstep::emulated {

/// Work that needs other ranks, each of which has its part of it in a stream. **Thread safety:**
/// the lock of the GPUs.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual void begin() = 0;       ///< it is at the front of its stream
  virtual bool done() const = 0;  ///< the stream may continue
};

struct Work {
  std::function<void()> run;
  std::shared_ptr<bool> behind = {};  ///< an event of another stream that precedes it
  std::shared_ptr<Meeting> with = {};
};

}  // namespace lockstep::emulated

struct CUstream_st {
  std::deque<lockstep::emulated::Work> queue;
  std::shared_ptr<lockstep::emulated::Recording> recording;  ///< while it records
  int device = 0;
};

namespace lockstep::emulated {

/// The state of all GPUs of this process. Ranks may be threads, each with its own GPU; one of them
/// at a time is in a call of CUDA or NCCL.
struct Gpus {
  std::recursive_mutex mutex;
  std::condition_variable_any moved;  ///< a stream has got work, or continued
  std::map<const std::byte*, std::size_t> allocated, pinned;
  std::set<cudaStream_t> streams;
  std::size_t used = 0;
  cudaError_t last = cudaSuccess;
};
Gpus& gpus();

struct Lock : std::unique_lock<std::recursive_mutex> {
  Lock() : unique_lock(gpus().mutex) {}
};

int& device_of_thread();

/// Puts work into a stream. What needs other ranks does not make the host wait.
void put(cudaStream_t stream, Work work);
/// Runs what a stream, or all streams of this thread's device, hold. Waits for other ranks.
void finish(cudaStream_t stream);
void finish_all();
/// Runs all streams until `done`, or until none can continue. With `wait`, other ranks are waited
/// for.
void run_until(const std::function<bool()>& done, bool wait);

}  // namespace lockstep::emulated
