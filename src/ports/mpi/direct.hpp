#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/combine.hpp"
#include "lockstep/device/host_stream.hpp"
#include "ports/mpi/network.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::comm {

/// Which halves of a direct collective run. An all-reduce has both.
struct DirectWork {
  std::optional<Reduction> scatter{};  ///< each rank gets the sum (or maximum) of its chunk
  bool gather = false;                 ///< each rank's chunk goes to all others
};

/// One all-reduce in flight: a direct reduce-scatter and a direct all-gather, piece by piece. Or
/// one of the two alone.
///
/// The data is cut into one chunk per rank, and each rank owns the sum of its chunk: it receives
/// the others' parts, adds them in a fixed order, and sends each finished piece to all ranks. Only
/// one rank adds up each number, so all ranks end with the same bits, which depend only on the data
/// and the group's size. The volume is that of a ring, but with 2 hops instead of 2 (world - 1): a
/// rank that is busy computing answers only between its tape's steps, so each hop costs a step's
/// time. The price is more and smaller messages in a large group.
///
/// Final data is sent at once. If MPI copies directly between the processes of a node, the receiver
/// then needs nothing more from the sender.
class Direct final : public device::Pending {
 public:
  /// Messages carry `tag` and `tag + 1`, which no other operation of the group may use while this
  /// one is in flight. `data` must stay alive until it has finished.
  Direct(Channel& channel, Elements data, DirectWork work, int tag, std::string phase);
  ~Direct() override;
  bool advance() override;  ///< throws Error when nothing moved within the deadline

 private:
  /// Another rank and its chunk. This rank sends its part of each piece and receives the sum.
  struct Owner {
    int rank = 0;
    std::vector<Elements> pieces;
    std::vector<MPI_Request> requests;  ///< per piece: first the send, then the receive
    std::size_t given = 0, taken = 0;   ///< pieces
  };
  /// Room for one incoming part.
  struct Slot {
    std::unique_ptr<Block> block;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  std::vector<Elements> pieces_of(int rank) const;
  std::size_t chunk() const;
  std::size_t parts() const { return work_.scatter ? mine_.size() * owners_.size() : 0; }
  void begin(Owner& owner);
  void open_slots();
  void close_slots();
  void receive_part();
  bool add_parts();
  void add_part(const Elements& piece, const Block& part);
  void share(const Elements& piece);
  bool exchange(Owner& owner);
  bool done() const;

  Channel& channel_;
  Elements data_;
  DirectWork work_;
  Combine combine_{};
  int tag_;
  std::string phase_;
  RankDeadline deadline_;
  std::vector<Owner> owners_;   ///< the other ranks, starting with the next one
  std::vector<Elements> mine_;  ///< the pieces of this rank's chunk
  std::vector<Slot> slots_;  ///< part i, of piece i / owners and owner i % owners, in slot i % size
  std::unique_ptr<Block> total_;  ///< of the current piece, in float; only for sums of 16 bits
  std::size_t expected_ = 0, added_ = 0;  ///< parts requested, parts added
  std::vector<MPI_Request> shares_;       ///< sends of sums to the others
  std::size_t shared_ = 0;                ///< how many of them have finished
};

}  // namespace lockstep::comm
