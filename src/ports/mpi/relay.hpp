#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/host_stream.hpp"
#include "ports/mpi/network.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::comm {

/// Where a rank's data comes from and goes to, as ranks of the group.
struct Route {
  std::optional<int> from{};  ///< empty: the data is here
  std::vector<int> to{};
};

/// The route of `rank` when `root` broadcasts down a binomial tree: log2(world) hops, and no rank
/// sends more than log2(world) times the data, where a root that sends directly would send it
/// (world - 1) times. With pieces on their way at once, a long broadcast takes little longer than
/// its root's sends.
Route broadcast_route(int rank, int root, int world);

/// Data in flight along a route, piece by piece: a send, a receive, or one rank's part of a
/// broadcast.
class Relay final : public device::Pending {
 public:
  /// Messages carry `tag`, which no other operation between these ranks may use meanwhile. `data`
  /// must stay alive until it has finished.
  Relay(Channel& channel, Elements data, Route route, int tag, std::string phase);
  ~Relay() override;
  bool advance() override;  ///< throws Error when nothing moved within the deadline

 private:
  bool take_pieces();
  void pass_on(const Elements& piece);
  std::vector<int> awaited() const;

  Channel& channel_;
  Route route_;
  int tag_;
  std::string phase_;
  std::vector<int> awaited_;
  RankDeadline deadline_;
  std::vector<Elements> pieces_;
  std::vector<MPI_Request> receives_, sends_;
  std::size_t taken_ = 0, passed_ = 0;  ///< receives and sends that have finished
};

}  // namespace lockstep::comm
