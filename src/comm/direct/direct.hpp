#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/combine.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/elements.hpp"
#include "lockstep/comm/staging.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/device/host_stream.hpp"

namespace lockstep::comm {

/// The stream that all collectives of a rank go through where they run on the host. Operations on
/// separate memory may overlap in time, which fills the waits for answers. Operations on the same
/// memory run one after the other.
class HostNetwork {
 public:
  using Start = std::function<std::unique_ptr<device::Pending>()>;

  explicit HostNetwork(const ActivityTracker& of_rank,
                       std::shared_ptr<std::uint64_t> counted = std::make_shared<std::uint64_t>())
      : step(std::move(counted)), activity(of_rank) {}
  device::HostStream& stream() { return stream_; }
  /// Puts an operation into the stream. `start` is called when the earlier operations on `data`
  /// have finished: now, or when the stream advances this one, which is the earliest without
  /// `at_once`. Operations that only read `data` do not wait for each other.
  void put(Elements data, bool writes, bool at_once, Start start);
  /// What `calls` puts becomes one operation of the stream, whose parts progress together.
  void together(const std::function<void()>& calls);

  /// What an operation is called in errors: "step 12, bucket 3 of group rows". `group` is empty for
  /// the world.
  std::string phase(std::string_view name, std::string_view group) const;

  /// That errors name; 0 before the first one. Channels have that of the communicator they are of.
  const std::shared_ptr<std::uint64_t> step;
  const ActivityTracker activity;  ///< an operation that has moved something notes that there

 private:
  class Turn;
  class Together;
  struct Use {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
    const std::byte* reach = nullptr;  ///< the farthest end of this one and those before it
  };
  /// What one operation of the stream uses, with all its parts: they need not wait for each other,
  /// so an operation of many parts is one thing to look at for the others.
  struct Claim {
    std::vector<Use> uses;  ///< by address, once all of them are there
    std::size_t unfinished = 0;
  };
  bool waits(const Use& use, std::uint64_t number) const;
  static bool meets(const Claim& claim, const Use& use);

  std::map<std::uint64_t, Claim> claims_;  ///< of what has not finished, in the stream's order
  std::uint64_t next_ = 0;
  std::vector<std::unique_ptr<device::Pending>>* batch_ = nullptr;  ///< of together()
  device::HostStream stream_;  // last: its operations use the others
};

/// How direct collectives on the host cut their data. Every transport cuts it in the same way: the
/// owner of a chunk begins its sum, so the cut decides the bits.

/// The part of `data` whose sum this rank owns. It starts at a cache line of floats. Little data
/// has few owners: one is faster than many messages.
Elements owned_chunk(const Elements& data, int rank, int world);
/// Chunk `rank` of `world` equal ones.
Elements equal_chunk(const Elements& data, int rank, int world);
/// The messages of a chunk, in order. They fit in a block, and so does their sum in float.
std::vector<Elements> pieces_of(const Elements& chunk);

/// What all groups of a rank share; a channel has another one.
struct DirectHub {
  template <class... Network>
  explicit DirectHub(std::size_t world, const Network&... of_network)
      : collectives(world), sends(world), receives(world), network(of_network...) {}
  std::unique_ptr<Transport> transport;
  MakeDeadline deadline;
  Staging staging;
  /// By rank of the world, how many operations there were with it. Two ranks count alike what they
  /// have in common, because they put it into their streams in the same order.
  std::vector<std::uint32_t> collectives, sends, receives;
  HostNetwork network;  // last: its operations use the others
};

/// A group, as its operations see it.
struct DirectGroup {
  DirectHub* hub = nullptr;  ///< its operations hold the group, and it holds the operations
  std::string name;          ///< empty for the world
  int rank = 0;
  std::vector<int> members{};  ///< by rank: their ranks in the world

  int world() const { return static_cast<int>(members.size()); }
};

/// Another rank that takes part in an operation.
struct Partner {
  int rank = 0, in_world = 0;
  std::uint32_t number = 0;  ///< of this operation between the two ranks
};

/// The steps of an operation. With a root but no gathering, it is a send of all of the data.
struct DirectWork {
  std::optional<Reduction> reduction{};  ///< each rank combines all ranks' parts of its chunk
  std::optional<int> root{};             ///< this rank gives each rank its chunk
  bool gathers = false;                  ///< then each rank's chunk goes to all others
};

/// One operation in flight.
///
/// The data is cut into one chunk for each rank, and chunks into pieces, which travel one by one.
/// Each rank sends directly to each other one that needs its data, without rings or trees: a rank
/// that is busy computing answers only between its tape's steps, so hops cost more than messages.
/// The price is more and smaller messages in a large group.
///
/// In a sum, a rank gets the others' parts of its chunk, adds them to its own in a fixed order that
/// begins with the next rank's, and sends each finished piece to all. Only one rank adds up each
/// number, so all ranks end with the same bits, which depend only on the data and the group's size.
/// The volume is that of a ring, in 2 hops instead of 2 (world - 1). In a broadcast, the root gives
/// each rank a chunk, and that passes it on: all ranks send about as much, in 2 hops, where the
/// root of a tree sends everything log2(world) times. Little data goes from the root to all.
///
/// Where a transport copies messages, a rank could be far ahead of those that it only sends to, and
/// they would have to store everything. There an operation begins when it comes to the front of
/// the stream, and a root's ends when all have told that they have everything.
class Direct final : public device::Pending {
 public:
  /// `data` must stay alive until it has finished. `phase` is what errors call it.
  Direct(std::shared_ptr<const DirectGroup> group, Elements data, DirectWork work,
         const std::vector<Partner>& partners, std::string phase);
  bool advance() override;  ///< throws Error when nothing moved within the deadline

 private:
  struct Incoming {
    std::unique_ptr<Message> message;
    Elements piece;
    bool given = false;  ///< by the root, to be passed on
  };
  struct Peer {
    Partner partner;
    std::vector<Elements> pieces;  ///< of its chunk
    std::vector<std::unique_ptr<Message>> sends{};
    std::vector<Incoming> receives{};
    std::size_t sent = 0, received = 0;  ///< how many have finished, in their order
    std::size_t asked = 0;               ///< pieces of its chunk that are or were expected
  };
  enum Kind : std::uint32_t { part, whole, all_here, kinds };

  std::vector<Elements> pieces_of_chunk(int rank) const;
  void begin(Peer& peer);
  void send(Peer& peer, Kind kind, const Elements& piece);
  void expect(Peer& peer, Kind kind, const Elements& piece);
  void ask_for_chunk(Peer& peer);
  void share(const Elements& piece);
  bool work();
  bool add_parts();
  void add_part(const Elements& piece, const std::byte* theirs);
  bool exchange(Peer& peer);
  bool tell_root();
  void check_size(const Message& message, const Elements& piece, const Peer& peer) const;
  MessageTag tag(const Peer& peer, Kind kind) const;
  bool is_root() const { return work_.root == group_->rank; }
  bool is_transfer() const { return work_.root && !work_.gathers; }
  bool has_asked(const Peer& peer) const;
  bool is_waiting_for(std::size_t nth_peer) const;
  std::size_t parts() const { return work_.reduction ? mine_.size() * peers_.size() : 0; }
  std::vector<int> awaited() const;

  const std::shared_ptr<const DirectGroup> group_;
  Transport& transport_;
  const bool copies_;
  const Elements data_;
  const DirectWork work_;
  const std::string phase_;
  const Combine combine_;
  const std::vector<Elements> mine_;             ///< the pieces of this rank's chunk
  std::vector<Peer> peers_;                      ///< starting with the next rank
  std::vector<std::unique_ptr<Message>> parts_;  ///< of piece i / peers and peer i % peers
  std::size_t added_ = 0;                        ///< parts
  std::unique_ptr<Block> total_;                 ///< of a piece that is added in float
  bool told_root_ = false;
  const std::unique_ptr<WaitDeadline> deadline_;  // last: it asks for whom this waits
};

}  // namespace lockstep::comm
