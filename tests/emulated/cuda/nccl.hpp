#pragma once

// NCCL's communicators between threads of this process, each a rank with its own emulated GPU. It
// keeps NCCL's promises and no more: calls return before they are done, an operation runs when all
// of its ranks have it at the front of their streams, and a message when both have. What NCCL
// would wait for or corrupt for ever becomes an error of all the communicator's ranks, which says
// what the ranks did.

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated/cuda/streams.hpp"

namespace lockstep::emulated {

/// What one call moves.
struct Operation {
  enum class Verb { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
  Verb verb = Verb::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  ///< root, or the other rank of a message
  bool message() const { return verb == Verb::send || verb == Verb::receive; }
  /// Equal for all ranks of one collective.
  bool fits(const Operation& other) const {
    return verb == other.verb && count == other.count && type == other.type &&
           reduction == other.reduction && peer == other.peer;
  }
};
std::string describe(const Operation& operation);
std::size_t bytes_of(ncclDataType_t type);  ///< 0: unknown here
/// Bytes that it reads and writes in a group of `ranks`.
std::size_t bytes_read(const Operation& operation, std::size_t ranks);
std::size_t bytes_written(const Operation& operation, std::size_t ranks);
/// Moves the data of one collective, by rank, or from a send to its receive.
void move_data(const std::vector<const Operation*>& by_rank);

/// One rank's part of an operation.
struct Part {
  Operation operation;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::size_t number = 0;  ///< among its rank's collectives, or the messages between two ranks
  bool begun = false, done = false;
};

/// What one call, or one group of calls, puts into a stream.
class Launch final : public Meeting {
 public:
  explicit Launch(std::vector<std::shared_ptr<Part>> parts) : parts_(std::move(parts)) {}
  void begin() override;
  bool done() const override;
  void drop() { dropped_ = true; }
  const std::vector<std::shared_ptr<Part>>& parts() const { return parts_; }

 private:
  std::vector<std::shared_ptr<Part>> parts_;
  bool dropped_ = false;
};

/// What the ranks of one communicator share.
struct Clique {
  std::vector<ncclComm*> members;                          ///< by rank; null until it joins
  std::vector<std::vector<std::shared_ptr<Part>>> rounds;  ///< collectives in order, by rank
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>> sends, receives;
  struct Choice {
    int colour = 0, key = 0;
    ncclComm** place = nullptr;
  };
  std::vector<std::vector<std::optional<Choice>>> splits;  ///< in order, by rank
  std::size_t leaving = 0;                                 ///< ranks that have begun to close
  std::string fault;                                       ///< the first
  bool blocking = false;                                   ///< a call returns when it is done
  bool complete() const;
  /// The parts of other ranks that this one needs and that have been called.
  std::vector<std::shared_ptr<Part>> needed_by(const Part& part) const;
};

}  // namespace lockstep::emulated

/// One rank of a communicator.
struct ncclComm {
  enum class State { open, closed, aborted };
  std::shared_ptr<lockstep::emulated::Clique> clique;
  int rank = 0;
  int device = 0;
  State state = State::open;
  std::size_t collectives = 0, splits = 0;  ///< calls so far
  /// The newest call, until it is done: whether it can be, and what it then does.
  std::function<bool()> ready;
  std::function<void()> finish;
  int polls = 0;  ///< of the newest call
  bool leaving = false;
  std::vector<std::shared_ptr<lockstep::emulated::Launch>> launches;  ///< not yet done
  /// The stream of all communicators of this rank.
  std::shared_ptr<cudaStream_t> stream;
};
