#include "lockstep/comm/link_probe.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/mpi/factories.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::comm {
namespace {

constexpr int most_round_trips = 20, least_round_trips = 2;
constexpr double long_trip_s = 0.05;
constexpr std::size_t first_bytes = std::size_t{64} << 10, first_bytes_of_late = 4096,
                      chunk_bytes = std::size_t{1} << 20;
constexpr int turns = 5;          // the best one counts
constexpr double most_times = 4;  // no more turns after this many times the requested seconds

/// The rank with the lower number leads: it measures, and decides how much is sent.
class MpiLinkProbe final : public LinkProbe {
 public:
  MpiLinkProbe(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : comm_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {
    must(MPI_Comm_rank(comm, &rank_));
  }

  std::optional<LinkRate> measure(int partner, double seconds, bool has_time) override {
    phase_ = fmt::format("measuring the network between rank {} and rank {}",
                         std::min(rank_, partner), std::max(rank_, partner));
    partner_ = partner;
    out_.assign(1, has_time ? 1 : 0);
    exchange(1);  // now the other rank is here, and a connection exists
    if (!has_time || in_[0] == 0) return std::nullopt;
    const double began_s = now_s();
    LinkRate rate{0, best_round_trip(began_s + seconds / 2)};
    // The chunks to send, and the bytes of each. The first turn finds them, and may be the only
    // one.
    const std::size_t first = rate.round_trip_s > long_trip_s ? first_bytes_of_late : first_bytes;
    std::array<double, 2> next{1, static_cast<double>(first)};
    tell(next);
    for (int turn = 0; turn <= turns && next[0] > 0; ++turn) {
      const double found = send(next);
      if (turn != 1) rate.bytes_per_s = std::max(rate.bytes_per_s, found);
      if (turn == 1) rate.bytes_per_s = found;
      // A part of a chunk when even one would take too long.
      const double left = found * seconds / turns;
      next = {std::clamp(left / static_cast<double>(chunk_bytes), 1.0, 1e4),
              std::clamp(left, 1024.0, static_cast<double>(chunk_bytes))};
      if (now_s() - began_s > most_times * seconds) next = {0, 0};
      tell(next);
    }
    std::array<double, 2> result{rate.bytes_per_s, rate.round_trip_s};
    tell(result);
    return LinkRate{result[0], result[1]};
  }

 private:
  bool leads() const { return rank_ < partner_; }

  void finish(std::array<MPI_Request, 2>& requests) {
    RankDeadline deadline(roll_call_, deadline_s_, phase_);
    for (MPI_Request& request : requests)
      for (device::Idle idle; !finished(request); idle()) deadline.poll();
  }

  /// Bytes per second, in each direction.
  double send(const std::array<double, 2>& chunks_of_bytes) {
    const auto chunks = static_cast<std::size_t>(chunks_of_bytes[0]);
    const auto bytes = static_cast<std::size_t>(chunks_of_bytes[1]);
    const double began_s = now_s();
    for (std::size_t i = 0; i < chunks; ++i) exchange(bytes);
    return static_cast<double>(chunks * bytes) / (now_s() - began_s);
  }

  /// With each round trip the leader says whether another one follows.
  double best_round_trip(double until_s) {
    double best = 1e9;
    char another = 1;
    for (int i = 1; another != 0; ++i) {
      if (leads()) another = i < least_round_trips || (i < most_round_trips && now_s() < until_s);
      best = std::min(best, ping_pong(another));
    }
    return best;
  }

  /// Both ways at once.
  void exchange(std::size_t bytes) {
    out_.resize(std::max(out_.size(), bytes));
    in_.resize(std::max(in_.size(), bytes));
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    must(
        MPI_Irecv(in_.data(), static_cast<int>(bytes), MPI_BYTE, partner_, 0, comm_, &requests[0]));
    must(MPI_Isend(out_.data(), static_cast<int>(bytes), MPI_BYTE, partner_, 0, comm_,
                   &requests[1]));
    finish(requests);
  }

  void one_way(bool sends, void* data, int bytes) {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    must(sends ? MPI_Isend(data, bytes, MPI_BYTE, partner_, 0, comm_, &requests[0])
               : MPI_Irecv(data, bytes, MPI_BYTE, partner_, 0, comm_, &requests[0]));
    finish(requests);
  }

  double ping_pong(char& byte) {
    const double began_s = now_s();
    one_way(leads(), &byte, 1);
    one_way(!leads(), &byte, 1);
    return now_s() - began_s;
  }

  void tell(std::array<double, 2>& values) {
    one_way(leads(), values.data(), static_cast<int>(sizeof values));
  }

  MPI_Comm comm_;
  double deadline_s_;
  RollCall& roll_call_;
  int rank_ = 0, partner_ = 0;
  std::string phase_;
  std::vector<char> out_, in_;
};

}  // namespace

std::unique_ptr<LinkProbe> make_mpi_link_probe(MPI_Comm comm, double deadline_s,
                                               RollCall& roll_call) {
  return std::make_unique<MpiLinkProbe>(comm, deadline_s, roll_call);
}

}  // namespace lockstep::comm
