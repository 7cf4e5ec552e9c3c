#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/countdown.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "ports/tcp/handshake_server.hpp"
#include "ports/tcp/meet.hpp"
#include "ports/tcp/own_addresses.hpp"

namespace lockstep::comm {
namespace {

constexpr double last_words_s = 1;
constexpr std::size_t most_addresses = 32;

/// Rank 0 while the other ranks arrive.
class Reception {
 public:
  Reception(const cluster::MeetingPlace& place, const cluster::RankInfo& self)
      : Reception(place, self, listen_on(place.ports)) {}
  // The card is of no use later, and would mislead a later start.
  ~Reception() { unlink(place_.file.c_str()); }
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  std::vector<Peer> wait(const MeetingSpec& spec) {
    Countdown left(spec.deadline_s), mates_left(spec.mates_s);
    for (std::size_t came = here_.size(); here_.size() < peers_.size();) {
      check_not_cancelled(spec);
      keep_card();
      door_.wait();
      door_.admit([this](const Hello& hello) { return reason_against(hello); },
                  [this](const Hello& hello, Wire wire) { let_in(hello, std::move(wire)); });
      if (here_.size() == peers_.size()) break;  // the next meeting names ranks that go now
      look_for_gone();
      if (std::exchange(came, here_.size()) != here_.size()) mates_left = Countdown(spec.mates_s);
      if (left.over()) give_up(absence(spec.deadline_s));
      // A node from which no rank came may still be starting; a rank whose mates are here is not.
      if (mates_left.over() && somewhere_mates_wait()) give_up(absence(spec.mates_s));
    }
    return std::move(peers_);
  }

 private:
  Reception(const cluster::MeetingPlace& place, const cluster::RankInfo& self, Listener listener)
      : place_(place),
        world_(self.world),
        card_(cluster::new_card(own_names(self), listener.port)),
        door_(card_.secret, std::move(listener)) {
    peers_.resize(static_cast<std::size_t>(world_));
    peers_[0].node = place.node;
    held_ = cluster::leave_card(place.file, card_);
  }

  /// Where locks do not work, another start may have taken it for a dead one's.
  void keep_card() {
    if (now_s() - looked_s_ < 1) return;
    looked_s_ = now_s();
    if (access(place_.file.c_str(), F_OK) != 0) held_ = cluster::leave_card(place_.file, card_);
  }

  /// First the names, which the site has chosen, then the addresses.
  std::vector<std::string> own_names(const cluster::RankInfo& self) const {
    std::vector<std::string> names = own_addresses();
    if (names.size() > most_addresses) names.resize(most_addresses);
    names.insert(names.begin(), {place_.node, self.host});
    names.emplace_back("127.0.0.1");
    return names;
  }

  void let_in(const Hello& hello, Wire wire) {
    Peer& peer = peers_[static_cast<std::size_t>(hello.rank)];
    peer.node = hello.node;
    peer.wire = std::move(wire);
    peer.wire.set_limit(message_limit);
    here_.push_back(hello.rank);
  }

  std::string reason_against(const Hello& hello) const {
    if (hello.job != place_.job)
      return fmt::format("rank 0 belongs to {}, this peer to {}", place_.job, hello.job);
    if (hello.world != world_)
      return fmt::format("rank 0 has a world of {}, this peer one of {}", world_, hello.world);
    if (hello.rank <= 0 || hello.rank >= world_)
      return fmt::format("a world of {} has no other rank {}", world_, hello.rank);
    if (std::find(here_.begin(), here_.end(), hello.rank) != here_.end())
      return fmt::format("rank {} is already here, from {}", hello.rank,
                         peers_[static_cast<std::size_t>(hello.rank)].node);
    return "";
  }

  void look_for_gone() {
    for (std::size_t rank = 1; rank < peers_.size(); ++rank)
      if (peers_[rank].wire.open() && peers_[rank].wire.ended())
        give_up(fmt::format("start-up: rank {} on {} came, and its process has ended", rank,
                            peers_[rank].node));
  }

  /// The ranks that came get the reason, as the answer to their first meeting.
  [[noreturn]] void give_up(const std::string& why) {
    std::vector<Wire*> wires;
    for (Peer& peer : peers_) {
      if (peer.wire.open()) peer.wire.send(refused + why);
      wires.push_back(&peer.wire);
    }
    // Closing a connection with unread data would discard what was just sent: read it first.
    const auto open = [](const Wire* wire) { return wire->open(); };
    for (Countdown left(last_words_s);
         std::any_of(wires.begin(), wires.end(), open) && !left.over(); wait_for(wires))
      for (Wire* wire : wires)
        while (wire->open() && wire->receive()) continue;
    throw MissingRanks(why);
  }

  std::map<std::string, int> came_from() const {
    std::map<std::string, int> came;
    for (const int rank : here_) ++came[peers_[static_cast<std::size_t>(rank)].node];
    return came;
  }

  bool somewhere_mates_wait() const {
    std::map<std::string, int> came = came_from();
    for (std::size_t i = 0; i < place_.nodes.size(); ++i)
      if (const int here = came[place_.nodes[i]]; here > 0 && here < place_.ranks_on_node[i])
        return true;
    return false;
  }

  /// "ranks 2-3 did not come within 60 s: from node2 came 0 of 2"
  std::string absence(double deadline_s) const {
    std::map<std::string, int> came = came_from();
    std::string text = fmt::format("start-up: {} did not come to {} within {} s",
                                   rank_list(all_but(here_, world_)), place_.node, deadline_s);
    const char* separator = ": from ";
    for (std::size_t i = 0; i < place_.nodes.size(); ++i) {
      const std::string& node = place_.nodes[i];
      if (came[node] == place_.ranks_on_node[i]) continue;
      text +=
          fmt::format("{}{} came {} of {}", separator, node, came[node], place_.ranks_on_node[i]);
      separator = ", ";
    }
    if (door_.strangers() > 0)
      text += fmt::format("; {} connection(s) did not know the secret in {}", door_.strangers(),
                          place_.file.string());
    return text;
  }

  const cluster::MeetingPlace& place_;
  int world_;
  cluster::MeetingCard card_;
  Owned<int, ::close, -1> held_;  ///< the card's file
  double looked_s_ = now_s();     ///< when it was last there
  HandshakeServer door_;
  std::vector<Peer> peers_;
  std::vector<int> here_{0};
};

}  // namespace

void check_not_cancelled(const MeetingSpec& spec) {
  if (spec.stop.stop_requested()) throw Error("start-up: this meeting was cancelled");
}

std::vector<Peer> accept_all_ranks(const cluster::MeetingPlace& place,
                                   const cluster::RankInfo& self, const MeetingSpec& spec) {
  return Reception(place, self).wait(spec);
}

}  // namespace lockstep::comm
