#include "ports/mpi/relay.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace lockstep::comm {

Route broadcast_route(int rank, int root, int world) {
  const int place = (rank - root + world) % world;  // the root is at 0
  Route route;
  int step = 1;
  for (; place + step < world && (place & step) == 0; step *= 2)
    route.to.push_back((place + step + root) % world);
  std::reverse(route.to.begin(), route.to.end());  // the largest subtree first
  if (place > 0) route.from = ((place & (place - 1)) + root) % world;
  return route;
}

Relay::Relay(Channel& channel, Elements data, Route route, int tag, std::string phase)
    : channel_(channel),
      route_(std::move(route)),
      tag_(tag),
      phase_(std::move(phase)),
      awaited_(awaited()),
      deadline_(channel.roll_call, channel.deadline_s, phase_, awaited_) {
  const std::size_t most = piece_bytes / bytes_of(data.type);
  for (std::size_t at = 0; at < data.count; at += most)
    pieces_.push_back(data.part(at, std::min(most, data.count - at)));
  for (const Elements& piece : pieces_) {
    if (route_.from)
      must(MPI_Irecv(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE,
                     channel_.in_mpi(*route_.from), tag_, channel_.comm,
                     &receives_.emplace_back(MPI_REQUEST_NULL)));
    else
      pass_on(piece);
  }
}

Relay::~Relay() {
  for (MPI_Request& request : receives_) abandon(request, true);
  for (MPI_Request& request : sends_) abandon(request, false);
}

bool Relay::advance() {
  bool moved = take_pieces();
  for (; passed_ < sends_.size() && finished(sends_[passed_]); ++passed_) moved = true;
  if (taken_ == receives_.size() && passed_ == sends_.size()) return true;
  if (moved) {
    deadline_.renew();
    channel_.network->activity.moved();
  } else {
    deadline_.poll();
  }
  return false;
}

bool Relay::take_pieces() {
  const std::size_t before = taken_;
  for (; taken_ < receives_.size(); ++taken_) {
    int done = 0, got = 0;
    MPI_Status status;
    must(MPI_Test(&receives_[taken_], &done, &status));
    if (done == 0) break;
    must(MPI_Get_count(&status, MPI_BYTE, &got));
    const Elements& piece = pieces_[taken_];
    if (static_cast<std::size_t>(got) != piece.bytes()) [[unlikely]]
      check(false, fmt::format("{}: rank {} sent fewer elements than this rank receives", phase_,
                               channel_.in_mpi(*route_.from)));
    pass_on(piece);
  }
  return taken_ > before;
}

void Relay::pass_on(const Elements& piece) {
  for (const int rank : route_.to)
    must(MPI_Isend(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE, channel_.in_mpi(rank),
                   tag_, channel_.comm, &sends_.emplace_back(MPI_REQUEST_NULL)));
}

/// The ranks next to this one on the route, as ranks of MPI's world.
std::vector<int> Relay::awaited() const {
  std::vector<int> ranks;
  if (route_.from) ranks.push_back(channel_.in_mpi(*route_.from));
  for (const int rank : route_.to) ranks.push_back(channel_.in_mpi(rank));
  return ranks;
}

}  // namespace lockstep::comm
