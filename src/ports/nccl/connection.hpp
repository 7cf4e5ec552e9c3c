#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/elements.hpp"

namespace lockstep::nccl {

/// What NCCL calls the types and reductions of collectives.
inline ncclDataType_t type_of(comm::ElementType type) {
  switch (type) {
    case comm::ElementType::f32:
      return ncclFloat32;
    case comm::ElementType::f16:
      return ncclFloat16;
    case comm::ElementType::bf16:
      return ncclBfloat16;
    case comm::ElementType::i32:
      return ncclInt32;
    case comm::ElementType::i64:
      return ncclInt64;
    case comm::ElementType::i8:
      return ncclInt8;
  }
  throw Error("a collective of a type that does not exist");
}

inline ncclRedOp_t operation_of(comm::Reduction reduction) {
  return reduction == comm::Reduction::sum ? ncclSum : ncclMax;
}

/// Wraps NCCL's communicator of one group. It is a blocking one: a non-blocking one starts a thread
/// for each collective, and the host would wait for that thread. What waits for other ranks by
/// design (open, split, the end) runs on a separate thread; state() tells when it has finished.
/// **Thread safety:** the main thread and the watch use it. It is shared with the threads that it
/// starts, because those may hang and outlive both.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  void open(const ncclUniqueId& id, int rank, int world);
  /// Makes `part` the communicator of this rank's colour (NCCL_SPLIT_NOCOLOR: none). The call has
  /// finished when this connection's state says so; `part` may be used then.
  void split(int colour, int key, std::shared_ptr<Connection> part);
  /// Gives NCCL's communicator to `start`, which starts an operation. The first one connects the
  /// ranks: then it waits for the others.
  ncclResult_t call(const std::function<ncclResult_t(ncclComm_t)>& start);
  /// ncclInProgress while something runs on a separate thread, or a call holds the lock.
  ncclResult_t state();
  /// How many calls have begun, plus how many have returned: odd while one is in NCCL.
  std::uint64_t calls() const { return calls_; }
  /// This rank and the number of ranks.
  ncclResult_t place(int& rank, int& world);

  /// Ends the communicator, together with the other ranks.
  void close();
  /// Ends NCCL's kernels and frees their resources. What is stuck, here or on a separate thread,
  /// holds the lock for ever: then this does nothing, and the watch or the caller gives up.
  void abort();

 private:
  void run_aside(std::function<ncclResult_t()> what);

  int device_ = 0;
  std::timed_mutex mutex_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t aside_result_ = ncclSuccess;  ///< of the newest that ran on a separate thread
  std::atomic<bool> aside_{false};           ///< one runs
  std::atomic<std::uint64_t> calls_{0};
  std::shared_ptr<Connection> part_;  ///< of the last split: NCCL's thread writes to it
};

std::string describe(ncclResult_t result);

/// The connections of a rank's groups. **Thread safety:** any thread may call it.
class Connections {
 public:
  void add(std::shared_ptr<Connection> connection);
  void remove(const std::shared_ptr<Connection>& connection);
  /// NCCL's error in any of them, or that a call has not returned for `deadline_s`; empty when
  /// there is none. Called by one thread, again and again.
  std::string error(double deadline_s);
  /// Aborts all of them at the same time: a kernel of one may wait in the stream for one of
  /// another. Each on a separate thread, which is abandoned if it hangs.
  void abort_within_patience() const;

 private:
  std::vector<std::shared_ptr<Connection>> all() const;
  double seconds_in_call(std::uint64_t calls);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> open_;
  std::uint64_t seen_calls_ = 0;  ///< of all connections, when error() last looked
  double last_look_s_ = 0, in_call_s_ = 0;
};

}  // namespace lockstep::nccl
