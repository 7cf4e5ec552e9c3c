#include "tests/emulated/cuda/nccl_cliques.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/error.hpp"
#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::emulated {

Library& library() {
  static Library library;
  return library;
}

Group& group_of_thread() {
  thread_local Group group;
  return group;
}

ncclResult_t refuse(ncclResult_t result, std::string why) {
  library().errors.push_back(std::move(why));
  return result;
}

void fail(Clique& clique, const std::string& why) {
  if (!clique.fault.empty()) return;
  clique.fault = why;
  library().errors.push_back(why);
  gpus().moved.notify_all();
}

std::optional<ncclResult_t> judge(const ncclComm* comm, const char* call) {
  const auto& all = library().comms;
  const bool known =
      std::any_of(all.begin(), all.end(), [&](const ncclComm& c) { return &c == comm; });
  if (!known) return refuse(ncclInvalidArgument, fmt::format("{}: no such communicator", call));
  if (comm->state != ncclComm::State::open)
    return refuse(ncclInvalidArgument,
                  fmt::format("{} after its communicator was {}", call,
                              comm->state == ncclComm::State::aborted ? "aborted" : "destroyed"));
  if (!comm->clique->fault.empty()) return ncclInvalidUsage;
  if (comm->ready)
    return refuse(ncclInvalidUsage, fmt::format("{} while another call is in progress", call));
  if (comm->leaving)
    return refuse(ncclInvalidUsage, fmt::format("{} after ncclCommFinalize", call));
  return std::nullopt;
}

ncclResult_t begin_call(ncclComm& comm, std::function<bool()> ready, std::function<void()> finish) {
  comm.ready = std::move(ready);
  comm.finish = std::move(finish);
  comm.polls = 0;
  return ncclInProgress;
}

bool idle(const ncclComm& comm) {
  return std::all_of(comm.launches.begin(), comm.launches.end(),
                     [](const auto& launch) { return launch->done(); });
}

ncclComm* new_member(const std::shared_ptr<Clique>& clique, int rank,
                     std::shared_ptr<cudaStream_t> stream) {
  ncclComm& comm = library().comms.emplace_back();
  comm.clique = clique;
  comm.rank = rank;
  comm.device = device_of_thread();
  comm.stream = std::move(stream);
  clique->members[static_cast<std::size_t>(rank)] = &comm;
  return &comm;
}

namespace {

/// Notes a part in its communicator, in the order of the calls. Compares it with what the other
/// ranks have called there.
void enter(const std::shared_ptr<Part>& part) {
  ncclComm& comm = *part->comm;
  Clique& clique = *comm.clique;
  const Operation& mine = part->operation;
  const auto differ = [&](int rank, const Operation& theirs) {
    fail(clique, fmt::format("rank {} of {} calls {}, rank {} calls {}", comm.rank,
                             clique.members.size(), describe(mine), rank, describe(theirs)));
  };
  if (mine.message()) {
    const bool is_send = mine.verb == Operation::Verb::send;
    auto& own =
        (is_send ? clique.sends : clique.receives)[is_send ? std::pair{comm.rank, mine.peer}
                                                           : std::pair{mine.peer, comm.rank}];
    part->number = own.size();
    own.push_back(part);
    for (const auto& other : clique.needed_by(*part))
      if (other->operation.count != mine.count || other->operation.type != mine.type)
        differ(other->comm->rank, other->operation);
    return;
  }
  part->number = comm.collectives++;
  if (clique.rounds.size() <= part->number)
    clique.rounds.resize(part->number + 1,
                         std::vector<std::shared_ptr<Part>>(clique.members.size()));
  std::vector<std::shared_ptr<Part>>& round = clique.rounds[part->number];
  for (const auto& other : round)
    if (other && !other->operation.fits(mine)) return differ(other->comm->rank, other->operation);
  round[static_cast<std::size_t>(comm.rank)] = part;
}

/// The first work in a part's stream, if that waits for other ranks. A rank that has ended took its
/// stream away: nothing waits there.
Launch* front_of(const Part& part) {
  if (!gpus().streams.contains(part.stream)) return nullptr;
  const auto& queue = part.stream->queue;
  return queue.empty() ? nullptr : dynamic_cast<Launch*>(queue.front().with.get());
}

/// Follows what a launch waits for, from the front of one stream to the front of another, until it
/// comes to a launch that is on the way already.
bool waits_for_itself(Launch& launch, std::vector<Launch*>& way) {
  if (std::find(way.begin(), way.end(), &launch) != way.end()) return true;
  way.push_back(&launch);
  for (const auto& part : launch.parts()) {
    if (part->done) continue;
    for (const auto& other : part->comm->clique->needed_by(*part)) {
      Launch* before = front_of(*other);
      const auto& at_front = before ? before->parts() : launch.parts();
      if (!before || std::find(at_front.begin(), at_front.end(), other) != at_front.end()) continue;
      if (waits_for_itself(*before, way)) return true;
    }
  }
  way.pop_back();
  return false;
}

}  // namespace

void look_for_deadlock() {
  for (const cudaStream_t stream : gpus().streams) {
    auto* launch =
        stream->queue.empty() ? nullptr : dynamic_cast<Launch*>(stream->queue.front().with.get());
    std::vector<Launch*> way;
    if (!launch || launch->done() || !waits_for_itself(*launch, way)) continue;
    std::string what;
    for (const Launch* one : way) {
      const Part& part = *one->parts()[0];
      what += fmt::format("{}rank {} of {} in its {}", what.empty() ? "" : ", ", part.comm->rank,
                          part.comm->clique->members.size(), describe(part.operation));
    }
    for (const Launch* one : way)
      for (const auto& part : one->parts())
        fail(*part->comm->clique, "these wait for each other for ever: " + what);
  }
}

namespace {

/// Puts what was called into its stream.
void launch(const std::vector<std::shared_ptr<Part>>& parts) {
  ncclComm& comm = *parts[0]->comm;
  const auto made = std::make_shared<Launch>(parts);
  std::erase_if(comm.launches, [](const auto& old) { return old->done(); });
  comm.launches.push_back(made);
  for (const auto& part : parts) enter(part);
  put(parts[0]->stream, {{}, {}, made});
}

ncclResult_t start(const std::vector<std::shared_ptr<Part>>& parts) {
  ncclComm& comm = *parts[0]->comm;
  for (const auto& part : parts) {
    if (part->comm != &comm || part->stream != parts[0]->stream)
      return refuse(ncclInvalidUsage, "a group of calls on two communicators or streams");
  }
  if (parts[0]->stream->recording)
    return refuse(ncclInvalidUsage, "the emulation records no collectives");
  cudaStream_t& usual = *comm.stream;
  if (usual && usual != parts[0]->stream && gpus().streams.contains(usual) && !usual->queue.empty())
    fail(*comm.clique, fmt::format("rank {} has collectives in two streams, which overlap: {}",
                                   comm.rank, describe(parts[0]->operation)));
  usual = parts[0]->stream;
  return begin_call(
      comm, [] { return true; }, [parts] { launch(parts); });
}

}  // namespace

ncclResult_t call(Operation operation, ncclComm* comm, cudaStream_t stream) {
  const Lock lock;
  const auto verdict = judge(comm, "a collective");
  Group& group = group_of_thread();
  ncclResult_t result = verdict.value_or(ncclSuccess);
  if (!verdict) {
    const std::size_t ranks = comm->clique->members.size();
    const std::size_t read = bytes_read(operation, ranks),
                      written = bytes_written(operation, ranks);
    if (bytes_of(operation.type) == 0 ||
        (operation.reduction != ncclSum && operation.reduction != ncclMax))
      result = refuse(ncclInvalidArgument, "a type or reduction that the emulation does not know");
    else if (operation.peer < 0 || operation.peer >= static_cast<int>(ranks) ||
             (operation.message() && operation.peer == comm->rank))
      result = refuse(ncclInvalidArgument, fmt::format("there is no rank {}", operation.peer));
    else if (!gpus().streams.contains(stream) || stream->device != comm->device)
      result = refuse(ncclInvalidArgument, "a stream of another GPU");
    else if ((read > 0 && !on_device(operation.from, read)) ||
             (written > 0 && !on_device(operation.to, written)))
      result = refuse(ncclInvalidArgument, "memory beyond an allocation on the device");
  }
  if (result != ncclSuccess) {
    if (group.depth > 0) group.result = result;
    return result;
  }
  const auto part = std::make_shared<Part>(Part{operation, comm, stream});
  if (group.depth == 0) return start({part});
  group.parts.push_back(part);
  return ncclSuccess;
}

ncclResult_t end_group(ncclComm_t& comm) {
  const Lock lock;
  Group& group = group_of_thread();
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group whole = std::exchange(group, {});
  if (whole.result != ncclSuccess || whole.parts.empty()) return whole.result;
  comm = whole.parts[0]->comm;
  return start(whole.parts);
}

bool Clique::complete() const {
  return std::find(members.begin(), members.end(), nullptr) == members.end();
}

std::vector<std::shared_ptr<Part>> Clique::needed_by(const Part& part) const {
  std::vector<std::shared_ptr<Part>> others;
  const Operation& o = part.operation;
  if (!o.message()) {
    for (const auto& other : rounds[part.number])
      if (other && other.get() != &part) others.push_back(other);
    return others;
  }
  const bool is_send = o.verb == Operation::Verb::send;
  const std::pair<int, int> way =
      is_send ? std::pair{part.comm->rank, o.peer} : std::pair{o.peer, part.comm->rank};
  const auto& opposite = is_send ? receives : sends;
  const auto theirs = opposite.find(way);
  if (theirs != opposite.end() && part.number < theirs->second.size())
    others.push_back(theirs->second[part.number]);
  return others;
}

void Launch::begin() {
  for (const auto& part : parts_) part->begun = true;
  for (const auto& part : parts_) {
    Clique& clique = *part->comm->clique;
    if (part->done || dropped_ || !clique.fault.empty()) continue;
    std::vector<std::shared_ptr<Part>> all = clique.needed_by(*part);
    const std::size_t others = part->operation.message() ? 1 : clique.members.size() - 1;
    if (all.size() < others ||
        !std::all_of(all.begin(), all.end(), [](const auto& other) { return other->begun; }))
      continue;
    all.push_back(part);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a->operation.message() ? a->operation.verb < b->operation.verb
                                    : a->comm->rank < b->comm->rank;
    });
    std::vector<const Operation*> operations;
    for (const auto& one : all) operations.push_back(&one->operation);
    move_data(operations);
    for (const auto& one : all) one->done = true;
    gpus().moved.notify_all();
  }
}

bool Launch::done() const {
  return dropped_ ||
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done; });
}

}  // namespace lockstep::emulated
