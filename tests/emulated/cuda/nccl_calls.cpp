#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/cuda/nccl_cliques.hpp"

using namespace lockstep::emulated;

namespace {

/// Without the lock: a call of a communicator that blocks returns when it is done.
ncclResult_t settle(ncclComm* comm, ncclResult_t result) {
  while (result == ncclInProgress && comm->clique->blocking) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) return asked;
  }
  return result;
}

ncclResult_t run(const Operation& operation, ncclComm* comm, cudaStream_t stream) {
  return settle(comm, call(operation, comm, stream));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock;
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = fmt::format("meeting {}", ++library().ids);
  std::copy(text.begin(), text.end(), id->internal);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInProgress:
      return "in progress";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "an error of NCCL";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  const Lock lock;
  return library().errors.empty() ? "" : library().errors.back().c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclResult_t result = join(comm, ranks, id, rank, !config || config->blocking != 0);
  return settle(*comm, result);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* part, ncclConfig_t*) {
  return settle(comm, start_split(comm, colour, key, part));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock lock;
  const auto& all = library().comms;
  if (std::none_of(all.begin(), all.end(), [&](const ncclComm& c) { return &c == comm; }) ||
      comm->state != ncclComm::State::open)
    return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: no such communicator");
  look_for_deadlock();
  if (!comm->clique->fault.empty()) {
    *state = ncclInvalidUsage;
  } else if (!comm->ready) {
    *state = ncclSuccess;
  } else if (!comm->ready() || ++comm->polls < polls_of_a_call) {
    *state = ncclInProgress;
  } else {
    comm->ready = {};
    std::exchange(comm->finish, {})();
    *state = comm->clique->fault.empty() ? ncclSuccess : ncclInvalidUsage;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return settle(comm, start_end(comm)); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock;
  if (comm->state != ncclComm::State::open || !comm->leaving || comm->ready)
    return refuse(ncclInvalidUsage, "ncclCommDestroy before ncclCommFinalize has finished");
  comm->state = ncclComm::State::closed;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock;
  if (comm->state != ncclComm::State::open)
    return refuse(ncclInvalidArgument, "ncclCommAbort of a communicator that has ended");
  comm->state = ncclComm::State::aborted;
  comm->ready = {};
  for (const auto& one : comm->launches) one->drop();
  gpus().moved.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  const Lock lock;
  if (const auto verdict = judge(comm, "ncclCommCount")) return *verdict;
  *ranks = static_cast<int>(comm->clique->members.size());
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const Lock lock;
  if (const auto verdict = judge(comm, "ncclCommUserRank")) return *verdict;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_of_thread().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  ncclComm_t comm = nullptr;
  const ncclResult_t result = end_group(comm);
  return settle(comm, result);
}

using Verb = Operation::Verb;

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return run({Verb::all_reduce, from, to, count, type, reduction, 0}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return run({Verb::reduce_scatter, from, to, count, type, reduction, 0}, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return run({Verb::all_gather, from, to, count, type, ncclSum, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return run({Verb::broadcast, from, to, count, type, ncclSum, root}, comm, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return run({Verb::send, from, nullptr, count, type, ncclSum, peer}, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return run({Verb::receive, nullptr, to, count, type, ncclSum, peer}, comm, stream);
}

}  // extern "C"
