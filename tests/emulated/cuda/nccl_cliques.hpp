#pragma once

// The cliques of the emulated NCCL, and their one lock.

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/emulated/cuda/nccl.hpp"

namespace lockstep::emulated {

/// How often a rank must ask before a call is done, so that one who does not ask is found out.
inline constexpr int polls_of_a_call = 2;

struct Library {
  std::list<ncclComm> comms;  // also those that are closed: a later use of them is an error
  std::map<std::string, std::shared_ptr<Clique>> meetings;  // by unique id
  std::deque<std::string> errors;                           // their texts must stay
  std::size_t ids = 0;
};
Library& library();

/// Calls between ncclGroupStart() and ncclGroupEnd().
struct Group {
  int depth = 0;
  ncclResult_t result = ncclSuccess;
  std::vector<std::shared_ptr<Part>> parts;
};
Group& group_of_thread();

ncclResult_t refuse(ncclResult_t result, std::string why);
/// From now on all ranks get this as the communicator's error.
void fail(Clique& clique, const std::string& why);
/// Nothing if the communicator may be called now.
std::optional<ncclResult_t> judge(const ncclComm* comm, const char* call);
ncclResult_t begin_call(ncclComm& comm, std::function<bool()> ready, std::function<void()> finish);
bool idle(const ncclComm& comm);
ncclComm* new_member(const std::shared_ptr<Clique>& clique, int rank,
                     std::shared_ptr<cudaStream_t> stream);
void look_for_deadlock();

/// A collective or a message; in progress for a communicator that does not block.
ncclResult_t call(Operation operation, ncclComm* comm, cudaStream_t stream);
/// Sets `comm` to whose group it was.
ncclResult_t end_group(ncclComm_t& comm);

ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, bool blocking);
ncclResult_t start_split(ncclComm_t comm, int colour, int key, ncclComm_t* part);
ncclResult_t start_end(ncclComm_t comm);

}  // namespace lockstep::emulated
