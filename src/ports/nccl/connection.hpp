#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::comm {

/// Wraps NCCL's communicator of one group. It is non-blocking: every call returns at once, and
/// state() tells when the call has finished. **Thread safety:** the main thread and the watch use
/// it. It is shared with the thread that aborts it, because that one may hang and outlive both.
class Connection {
 public:
  ncclResult_t open(const ncclUniqueId& id, int rank, int world);
  /// Makes `part` the communicator of this rank's colour (NCCL_SPLIT_NOCOLOR: none). The call has
  /// finished when this connection's state says so; `part` may be used then.
  ncclResult_t split(int colour, int key, std::shared_ptr<Connection> part);
  /// Gives NCCL's communicator to `start`, which starts an operation.
  ncclResult_t call(const std::function<ncclResult_t(ncclComm_t)>& start);
  /// ncclInProgress while a call is in progress. Also ncclInProgress while another thread's call
  /// holds the lock.
  ncclResult_t state();
  /// This rank and the number of ranks.
  ncclResult_t place(int& rank, int& world);

  ncclResult_t begin_to_close();
  void close();
  /// Ends NCCL's kernels and frees their resources. A stuck call holds the lock for ever: then this
  /// does nothing, and the watch gives up.
  void abort();

 private:
  int device_ = 0;
  std::timed_mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::shared_ptr<Connection> part_;  ///< of the last split: NCCL's thread writes to it
};

std::string describe(ncclResult_t result);

/// The connections of a rank's groups. **Thread safety:** any thread may call it.
class Connections {
 public:
  void add(std::shared_ptr<Connection> connection);
  void remove(const std::shared_ptr<Connection>& connection);
  /// NCCL's error in any of them; empty when there is none.
  std::string error() const;
  /// Aborts all of them at the same time: a kernel of one may wait in the stream for one of
  /// another. Each on a separate thread, which is abandoned if it hangs.
  void abort_within_patience() const;

 private:
  std::vector<std::shared_ptr<Connection>> all() const;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> open_;
};

}  // namespace lockstep::comm
