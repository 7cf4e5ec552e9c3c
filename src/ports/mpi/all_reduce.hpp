#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/host_stream.hpp"
#include "ports/mpi/call.hpp"
#include "ports/mpi/rank_deadline.hpp"
#include "ports/mpi/staging.hpp"

namespace lockstep::comm {

/// Shared by all reductions of one communicator.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  double deadline_s = 0;  ///< of silence, after which a reduction fails
  RollCall& roll_call;
  int rank = 0, world = 1;
  Staging staging{};
};

/// One all-reduce in flight: a direct reduce-scatter and a direct all-gather, piece by piece.
///
/// The data is cut into one chunk per rank, and each rank owns the sum of its chunk: it receives
/// the others' parts, adds them in a fixed order, and sends each finished piece to all ranks. Only
/// one rank adds up each number, so all ranks end with the same bits, which depend only on the data
/// and the world's size. The volume is that of a ring, but with 2 hops instead of 2 (world - 1): a
/// rank that is busy computing answers only between its tape's steps, so each hop costs a step's
/// time. The price is more and smaller messages in a large world.
///
/// Final data is sent at once. If MPI copies directly between the processes of a node, the receiver
/// then needs nothing more from the sender.
class AllReduce final : public device::Pending {
 public:
  /// Messages carry `tag` and `tag + 1`, which no other reduction may use while this one is in
  /// flight. `data` must stay alive until it has finished.
  AllReduce(Channel& channel, float* data, std::size_t count, int tag, std::string name);
  ~AllReduce() override;
  bool advance() override;  ///< throws Error when nothing moved within the deadline

 private:
  struct Span {
    float* data = nullptr;
    int count = 0;
  };
  /// Another rank and its chunk. This rank sends its part of each piece and receives the sum.
  struct Owner {
    int rank = 0;
    std::vector<Span> pieces;
    std::vector<MPI_Request> requests;  ///< per piece: first the send, then the receive
    std::size_t given = 0, taken = 0;   ///< pieces
  };
  /// Room for one incoming part.
  struct Slot {
    std::unique_ptr<Block> block;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  std::vector<Span> pieces_of(int rank) const;
  std::size_t parts() const { return mine_.size() * owners_.size(); }
  void open_slots();
  void close_slots();
  void receive_part();
  bool add_parts();
  void share(const Span& piece);
  bool exchange(Owner& owner);
  bool done() const;

  Channel& channel_;
  float* data_;
  std::size_t count_;
  int tag_;
  std::string name_;
  RankDeadline deadline_;
  std::vector<Owner> owners_;  ///< the other ranks, starting with the next one
  std::vector<Span> mine_;     ///< the pieces of this rank's chunk
  std::vector<Slot> slots_;  ///< part i, of piece i / owners and owner i % owners, in slot i % size
  std::size_t expected_ = 0, added_ = 0;  ///< parts requested, parts added
  std::vector<MPI_Request> shares_;       ///< sends of sums to the others
  std::size_t shared_ = 0;                ///< how many of them have finished
};

}  // namespace lockstep::comm
