#include "lockstep/comm/link_probe.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/idle.hpp"
#include "mpi/factories.hpp"
#include "mpi/patience.hpp"

namespace lockstep::comm {
namespace {

constexpr int round_trips = 20;
constexpr std::size_t first_bytes = std::size_t{64} << 10, chunk_bytes = std::size_t{1} << 20;
constexpr int turns = 5;  // of which the best counts

/// The rank with the lower number leads: it measures, and says how much is sent.
class MpiLinkProbe final : public LinkProbe {
 public:
  MpiLinkProbe(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : comm_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {
    must(MPI_Comm_rank(comm, &rank_));
  }

  LinkRate measure(int partner, double seconds) override {
    phase_ = fmt::format("measuring the network between rank {} and rank {}",
                         std::min(rank_, partner), std::max(rank_, partner));
    partner_ = partner;
    std::array<double, 2> result{0, 1e9};
    exchange(1);  // the other has come, and a connection is there
    for (int i = 0; i < round_trips; ++i) result[1] = std::min(result[1], ping_pong());
    std::size_t chunks = 1;
    std::size_t bytes = first_bytes;
    for (int turn = 0; turn <= turns; ++turn) {  // the first finds out how much to send
      const double began_s = now_s();
      for (std::size_t i = 0; i < chunks; ++i) exchange(bytes);
      const double rate = static_cast<double>(chunks * bytes) / (now_s() - began_s);
      if (turn > 0) result[0] = std::max(result[0], rate);
      // A share of a chunk where even one would take too long.
      const double left = rate * seconds / turns;
      std::array<double, 2> next{std::clamp(left / static_cast<double>(chunk_bytes), 1.0, 1e4),
                                 std::clamp(left, 1024.0, static_cast<double>(chunk_bytes))};
      tell(next);
      chunks = static_cast<std::size_t>(next[0]);
      bytes = static_cast<std::size_t>(next[1]);
    }
    tell(result);
    return {result[0], result[1]};
  }

 private:
  bool leads() const { return rank_ < partner_; }

  void finish(std::array<MPI_Request, 2>& requests) {
    Patience patience(roll_call_, deadline_s_, phase_);
    for (MPI_Request& request : requests)
      for (Idle idle; !finished(request); idle()) patience.strain();
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

  double ping_pong() {
    char byte = 0;
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
