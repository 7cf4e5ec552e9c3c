#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/cuda/nccl_cliques.hpp"

namespace lockstep::emulated {

namespace {

/// All ranks have said which group they want: makes them.
void divide(const std::shared_ptr<Clique>& parent, std::size_t number) {
  const auto& choices = parent->splits[number];
  std::map<int, std::vector<int>> groups;  // the parent's ranks, by colour
  for (std::size_t rank = 0; rank < choices.size(); ++rank)
    if (choices[rank]->colour >= 0) groups[choices[rank]->colour].push_back(static_cast<int>(rank));
  const auto choice = [&](int rank) -> const Clique::Choice& {
    return *choices[static_cast<std::size_t>(rank)];
  };
  for (auto& [colour, ranks] : groups) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](int a, int b) { return choice(a).key < choice(b).key; });
    const auto clique = std::make_shared<Clique>();
    clique->members.resize(ranks.size());
    clique->blocking = parent->blocking;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const ncclComm& before = *parent->members[static_cast<std::size_t>(ranks[rank])];
      ncclComm* comm = new_member(clique, static_cast<int>(rank), before.stream);
      comm->device = before.device;
    }
    // Each rank gets its own when it asks.
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      *choice(ranks[rank]).place = clique->members[rank];
  }
}

ncclResult_t split(ncclComm& comm, int colour, int key, ncclComm** place) {
  const std::shared_ptr<Clique> clique = comm.clique;
  const std::size_t number = comm.splits++;
  if (!idle(comm)) fail(*clique, fmt::format("rank {} splits with work in flight", comm.rank));
  if (clique->splits.size() <= number)
    clique->splits.resize(number + 1,
                          std::vector<std::optional<Clique::Choice>>(clique->members.size()));
  auto& choices = clique->splits[number];
  *place = nullptr;
  choices[static_cast<std::size_t>(comm.rank)] = {colour, key, place};
  const auto all = [clique, number] {
    const auto& said = clique->splits[number];
    return std::all_of(said.begin(), said.end(), [](const auto& one) { return one.has_value(); });
  };
  if (all()) divide(clique, number);
  return begin_call(comm, all, [] {});
}

}  // namespace

ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  const Lock lock;
  *comm = nullptr;
  std::shared_ptr<Clique>& clique = library().meetings[std::string(id.internal)];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->members.resize(static_cast<std::size_t>(ranks));
    clique->blocking = blocking;
  }
  if (clique->members.size() != static_cast<std::size_t>(ranks) || rank < 0 || rank >= ranks ||
      clique->members[static_cast<std::size_t>(rank)] || clique->blocking != blocking)
    return refuse(ncclInvalidArgument,
                  fmt::format("rank {} of {} does not fit the others", rank, ranks));
  *comm = new_member(clique, rank, std::make_shared<cudaStream_t>(nullptr));
  return begin_call(
      **comm, [clique] { return clique->complete(); }, [] {});
}

ncclResult_t start_split(ncclComm_t comm, int colour, int key, ncclComm_t* part) {
  const Lock lock;
  if (const auto verdict = judge(comm, "ncclCommSplit")) return *verdict;
  if (colour < 0 && colour != NCCL_SPLIT_NOCOLOR)
    return refuse(ncclInvalidArgument, fmt::format("there is no colour {}", colour));
  return split(*comm, colour, key, part);
}

ncclResult_t start_end(ncclComm_t comm) {
  const Lock lock;
  if (const auto verdict = judge(comm, "ncclCommFinalize")) return *verdict;
  comm->leaving = true;
  ++comm->clique->leaving;
  return begin_call(
      *comm,
      [comm] { return idle(*comm) && comm->clique->leaving == comm->clique->members.size(); },
      [] {});
}

}  // namespace lockstep::emulated
