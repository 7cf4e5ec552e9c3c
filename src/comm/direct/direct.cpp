#include "comm/direct/direct.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/collected.hpp"

namespace lockstep::comm {

/// An operation from its place in the stream to its end.
class HostNetwork::Turn final : public device::Pending {
 public:
  Turn(HostNetwork& network, Use use, std::uint64_t claim, Start start)
      : network_(network), use_(use), claim_(claim), start_(std::move(start)) {
    Claim& mine = network_.claims_[claim_];
    mine.uses.push_back(use_);
    ++mine.unfinished;
  }
  ~Turn() override { leave(); }

  /// Starts the operation if it need not wait; true when it has started.
  bool begin() {
    if (!operation_ && !network_.waits(use_, claim_)) operation_ = start_();
    return operation_ != nullptr;
  }

  bool advance() override {
    if (!begin() || !operation_->advance()) return false;
    leave();
    return true;
  }

 private:
  void leave() {
    if (std::exchange(left_, true)) return;
    const auto mine = network_.claims_.find(claim_);
    if (--mine->second.unfinished == 0) network_.claims_.erase(mine);
  }

  HostNetwork& network_;
  Use use_;
  std::uint64_t claim_;
  Start start_;  ///< kept, because it owns what the operation uses
  std::unique_ptr<device::Pending> operation_;
  bool left_ = false;
};

class HostNetwork::Together final : public device::Pending {
 public:
  explicit Together(std::vector<std::unique_ptr<device::Pending>> parts)
      : parts_(std::move(parts)) {}
  bool advance() override {
    std::erase_if(parts_, [](const auto& part) { return part->advance(); });
    return parts_.empty();
  }

 private:
  std::vector<std::unique_ptr<device::Pending>> parts_;
};

void HostNetwork::put(Elements data, bool writes, bool at_once, Start start) {
  const auto* begin = static_cast<const std::byte*>(data.data);
  const Use use{.begin = begin, .end = begin + data.bytes(), .writes = writes};
  auto turn = std::make_unique<Turn>(*this, use, batch_ ? next_ : next_++, std::move(start));
  if (at_once) turn->begin();
  if (batch_) {
    batch_->push_back(std::move(turn));
  } else {
    stream_.put(std::move(turn));
  }
}

void HostNetwork::together(const std::function<void()>& calls) {
  std::vector<std::unique_ptr<device::Pending>> parts = collected(batch_, calls);
  if (parts.empty()) return;
  std::vector<Use>& uses = claims_[next_++].uses;
  std::ranges::sort(uses, {}, &Use::begin);
  const std::byte* reach = nullptr;
  for (Use& use : uses) use.reach = reach = std::max(reach, use.end);
  stream_.put(std::make_unique<Together>(std::move(parts)));
}

/// Looks only at those that begin before the end of `use`, and of these, from the last one back, as
/// long as one may still end after its beginning.
bool HostNetwork::meets(const Claim& claim, const Use& use) {
  auto other = std::ranges::lower_bound(claim.uses, use.end, {}, &Use::begin);
  while (other != claim.uses.begin()) {
    --other;
    if (std::max(other->reach, other->end) <= use.begin) return false;
    if (use.begin < other->end && (other->writes || use.writes)) return true;
  }
  return false;
}

bool HostNetwork::waits(const Use& use, std::uint64_t number) const {
  return std::any_of(claims_.begin(), claims_.lower_bound(number),
                     [&](const auto& claim) { return meets(claim.second, use); });
}

std::string HostNetwork::phase(std::string_view name, std::string_view group) const {
  return (*step > 0 ? fmt::format("step {}, ", *step) : "") + phase_in(group, name);
}

namespace {

constexpr std::size_t line_bytes = 64;           // chunks start at cache lines
constexpr std::size_t least_chunk_bytes = 4096;  // below this, one owner is faster

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

Elements owned_chunk(const Elements& data, int rank, int world) {
  const std::size_t line = line_bytes / bytes_of(data.type);
  const std::size_t even =
      divide_up(divide_up(data.count, static_cast<std::size_t>(world)), line) * line;
  const std::size_t chunk = std::max(even, least_chunk_bytes / bytes_of(data.type));
  const std::size_t begin = std::min(data.count, chunk * static_cast<std::size_t>(rank));
  return data.part(begin, std::min(data.count - begin, chunk));
}

Elements equal_chunk(const Elements& data, int rank, int world) {
  const std::size_t chunk = data.count / static_cast<std::size_t>(world);
  return data.part(chunk * static_cast<std::size_t>(rank), chunk);
}

std::vector<Elements> pieces_of(const Elements& chunk) {
  // Of 16 bits as many as floats, because their sum needs floats.
  const std::size_t most = piece_bytes / std::max(sizeof(float), bytes_of(chunk.type));
  std::vector<Elements> pieces;
  for (std::size_t at = 0; at < chunk.count; at += most)
    pieces.push_back(chunk.part(at, std::min(most, chunk.count - at)));
  return pieces;
}

namespace {

constexpr std::size_t fewest_parts = 4, most_parts = 16;  // that are asked for at once
constexpr std::size_t most_from_root = 1 << 20;           // bytes of a broadcast without chunks

}  // namespace

Direct::Direct(std::shared_ptr<const DirectGroup> group, Elements data, DirectWork work,
               const std::vector<Partner>& partners, std::string phase)
    : group_(std::move(group)),
      transport_(*group_->hub->transport),
      copies_(transport_.copies()),
      data_(data),
      work_(work),
      phase_(std::move(phase)),
      combine_(work.reduction ? combine_of(data.type, *work.reduction) : Combine{}),
      mine_(pieces_of_chunk(group_->rank)),
      deadline_(group_->hub->deadline(phase_, [this] { return awaited(); })) {
  static_assert(2 * kinds == message_kinds);
  peers_.reserve(partners.size());
  for (const Partner& partner : partners)
    begin(peers_.emplace_back(Peer{partner, pieces_of_chunk(partner.rank)}));
  const bool complete = !work_.reduction && (!work_.root || is_root());
  for (std::size_t i = 0; complete && i < mine_.size(); ++i) share(mine_[i]);
}

/// An all-reduce and a broadcast may cut as they like; reduce-scatter and all-gather promise equal
/// chunks. A root has the first chunk. Little data has a single owner, in one hop: the root, or the
/// receiver of a transfer.
std::vector<Elements> Direct::pieces_of_chunk(int rank) const {
  const int world = group_->world();
  if (!work_.root && !(work_.reduction && work_.gathers))
    return pieces_of(equal_chunk(data_, rank, world));
  const bool little = data_.bytes() * static_cast<std::size_t>(world - 1) <= most_from_root;
  if (work_.root && (is_transfer() || world == 2 || little))
    return (rank == *work_.root) == work_.gathers ? pieces_of(data_) : std::vector<Elements>{};
  return pieces_of(owned_chunk(data_, (rank - work_.root.value_or(0) + world) % world, world));
}

void Direct::begin(Peer& peer) {
  if (work_.reduction || is_root())
    for (const Elements& piece : peer.pieces) send(peer, part, piece);
  if (is_root() && copies_) expect(peer, all_here, {});
  if (work_.root == peer.partner.rank)
    for (const Elements& piece : mine_) expect(peer, part, piece);
  ask_for_chunk(peer);
}

void Direct::send(Peer& peer, Kind kind, const Elements& piece) {
  peer.sends.push_back(
      transport_.send(peer.partner.in_world, tag(peer, kind), piece.data, piece.bytes()));
}

void Direct::expect(Peer& peer, Kind kind, const Elements& piece) {
  peer.receives.push_back(
      {transport_.expect(peer.partner.in_world, tag(peer, kind), piece.data, piece.bytes()), piece,
       kind == part});
}

/// Messages of a transfer are counted apart, for only two ranks of the group know of them.
MessageTag Direct::tag(const Peer& peer, Kind kind) const {
  return {is_transfer() ? kinds + kind : kind, peer.partner.number};
}

/// A piece's sum comes to the memory from which this rank's part of it leaves.
void Direct::ask_for_chunk(Peer& peer) {
  const bool shares_memory = work_.reduction && !copies_;
  const std::size_t ready = shares_memory ? peer.sent : peer.pieces.size();
  while (!has_asked(peer) && peer.asked < std::min(ready, peer.pieces.size()))
    expect(peer, whole, peer.pieces[peer.asked++]);
}

void Direct::share(const Elements& piece) {
  for (Peer& peer : peers_)
    if (work_.gathers && work_.root != peer.partner.rank) send(peer, whole, piece);
}

bool Direct::advance() {
  bool moved = false;
  do {
    while (work()) moved = true;
  } while (transport_.progress());
  bool over = true;
  for (std::size_t i = 0; i < peers_.size(); ++i) over = over && !is_waiting_for(i);
  if (over) return true;
  if (moved) {
    deadline_->renew();
    group_->hub->network.activity.moved();
  } else {
    deadline_->poll();
  }
  return false;
}

/// What the messages that have come allow; true when there was something.
bool Direct::work() {
  bool moved = add_parts();
  for (Peer& peer : peers_) moved = exchange(peer) || moved;
  return tell_root() || moved;
}

/// Adds the parts that have come, in their fixed order, and sends the sums that this completes.
/// Only a few parts are asked for at once, and none before the operation's turn: so queued
/// reductions need no blocks, and the few blocks in use stay in the cache.
bool Direct::add_parts() {
  const std::size_t before = added_, all = parts(), peers = peers_.size();
  for (; added_ < all; ++added_) {
    for (std::size_t next = parts_.size();
         next < std::min(all, added_ + std::clamp(peers, fewest_parts, most_parts)); ++next) {
      const Peer& from = peers_[next % peers];
      parts_.push_back(
          transport_.take(from.partner.in_world, tag(from, part), mine_[next / peers].bytes()));
    }
    if (!parts_[added_]->done()) break;
    const Elements& piece = mine_[added_ / peers];
    const std::unique_ptr<Message> came = std::move(parts_[added_]);
    check_size(*came, piece, peers_[added_ % peers]);
    add_part(piece, came->data);
    if ((added_ + 1) % peers == 0) share(piece);
  }
  return added_ > before;
}

void Direct::add_part(const Elements& piece, const std::byte* theirs) {
  if (!combine_.widen) return combine_.combine(piece.data, theirs, piece.count);
  const std::size_t nth = added_ % peers_.size();
  if (nth == 0) {
    total_ = group_->hub->staging.take();
    combine_.widen(total_->floats(), piece.data, piece.count);
  }
  combine_.combine(total_->floats(), theirs, piece.count);
  if (nth + 1 < peers_.size()) return;
  combine_.round(piece.data, total_->floats(), piece.count);
  group_->hub->staging.give_back(std::move(total_));
}

bool Direct::exchange(Peer& peer) {
  const std::size_t before = peer.sent + peer.received;
  for (; peer.sent < peer.sends.size() && peer.sends[peer.sent]->done(); ++peer.sent)
    peer.sends[peer.sent].reset();
  ask_for_chunk(peer);
  for (; peer.received < peer.receives.size(); ++peer.received) {
    Incoming& next = peer.receives[peer.received];
    if (!next.message->done()) break;
    check_size(*next.message, next.piece, peer);
    next.message.reset();
    if (next.given) share(next.piece);
  }
  return peer.sent + peer.received > before;
}

/// Once this rank has everything.
bool Direct::tell_root() {
  if (!work_.root || is_root() || !copies_ || told_root_) return false;
  for (Peer& peer : peers_)
    if (!has_asked(peer) || peer.received < peer.receives.size()) return false;
  for (Peer& peer : peers_)
    if (work_.root == peer.partner.rank) send(peer, all_here, {});
  return told_root_ = true;
}

void Direct::check_size(const Message& message, const Elements& piece, const Peer& peer) const {
  if (message.bytes != piece.bytes()) [[unlikely]]
    throw Error(fmt::format("{}: rank {} sent {} elements than this rank receives", phase_,
                            peer.partner.in_world,
                            message.bytes < piece.bytes() ? "fewer" : "more"));
}

/// Whether all of its chunk is or was expected.
bool Direct::has_asked(const Peer& peer) const {
  return !work_.gathers || is_root() || peer.asked == peer.pieces.size();
}

bool Direct::is_waiting_for(std::size_t nth_peer) const {
  const Peer& peer = peers_[nth_peer];
  const std::size_t peers = peers_.size();
  // From its next part on, in their order.
  const std::size_t before = (nth_peer + peers - added_ % peers) % peers;
  return added_ + before < parts() || peer.sent < peer.sends.size() ||
         peer.received < peer.receives.size() || !has_asked(peer);
}

std::vector<int> Direct::awaited() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (is_waiting_for(i)) ranks.push_back(peers_[i].partner.in_world);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace lockstep::comm
