#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/nodes.hpp"
#include "ports/tcp/meeting/card_keeper.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/meeting/meet.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {
namespace {

constexpr double last_words_s = 1;
// A rank that was let in too late hangs up and comes again; one that has heard so does not.
constexpr double come_again_s = 3;
constexpr std::size_t most_addresses = 32;

/// Rank 0 while the other ranks arrive.
class Reception {
 public:
  Reception(const cluster::MeetingPlace& place, const cluster::RankInfo& self)
      : Reception(place, self, listen_on(place.ports)) {}
  std::vector<Peer> wait(const comm::MeetingSpec& spec) {
    Countdown left(spec.deadline_s), mates_left(spec.mates_s);
    std::size_t came = 0;
    // A rank that goes after it has confirmed is named in the next meeting.
    while (!all_confirmed()) {
      check_not_cancelled(spec);
      card_keeper_.check_left();
      door_.wait(unconfirmed());
      door_.admit([this](const Hello& hello) { return reason_against(hello); },
                  [this](const Hello& hello, Wire wire) { let_in(hello, std::move(wire)); });
      if (all_confirmed()) break;
      look_for_gone();
      if (std::exchange(came, here().size()) != here().size()) mates_left = Countdown(spec.mates_s);
      if (left.over()) give_up(absence(spec.deadline_s));
      // A node from which no rank came may still be starting; a rank whose mates are here is not.
      if (mates_left.over() && somewhere_mates_wait()) give_up(absence(spec.mates_s));
    }
    std::vector<Peer> peers;
    for (Guest& guest : guests_) peers.push_back(std::move(guest.peer));
    return peers;
  }

  void turn_away(std::string_view why, double within_s) {
    const std::string answer = comm::ended_text(why);
    std::set<int> told{0};
    for (Countdown left(within_s); told.size() < guests_.size() && !left.over();) {
      card_keeper_.check_left();
      door_.wait();
      const auto refusal = [&](const Hello& hello) {
        const std::string wrong = reason_against(hello);
        if (wrong.empty()) told.insert(hello.rank);
        return wrong.empty() ? answer : wrong;
      };
      door_.admit(refusal, [](const Hello&, Wire) {});
    }
  }

 private:
  Reception(const cluster::MeetingPlace& place, const cluster::RankInfo& self, Listener listener)
      : place_(place),
        world_(self.world),
        card_(cluster::new_card(own_names(self), listener.port)),
        card_keeper_(place.file, card_),
        door_(card_.secret, std::move(listener)) {
    guests_.resize(static_cast<std::size_t>(world_));
    guests_[0].came = guests_[0].confirmed = true;
    guests_[0].peer.node = place.node;
  }

  /// First the names, which the site has chosen, then the addresses.
  std::vector<std::string> own_names(const cluster::RankInfo& self) const {
    std::vector<std::string> names = own_addresses();
    if (names.size() > most_addresses) names.resize(most_addresses);
    names.insert(names.begin(), {place_.node, self.host});
    names.emplace_back("127.0.0.1");
    return names;
  }

  /// A rank, as rank 0 sees it.
  struct Guest {
    Peer peer;
    bool came = false;                  ///< it was let in
    bool confirmed = false;             ///< and has heard so
    std::optional<Countdown> missed{};  ///< since it has hung up
  };

  void let_in(const Hello& hello, Wire wire) {
    Guest& guest = guests_[static_cast<std::size_t>(hello.rank)];
    guest = {{std::move(wire), hello.node}, true};
    guest.peer.wire.set_limit(message_limit);
  }

  /// A rank that has not confirmed, or has hung up, may come again.
  std::string reason_against(const Hello& hello) {
    if (hello.job != place_.job)
      return fmt::format("rank 0 belongs to {}, this peer to {}", place_.job, hello.job);
    if (hello.world != world_)
      return fmt::format("rank 0 has a world of {}, this peer one of {}", world_, hello.world);
    if (hello.rank <= 0 || hello.rank >= world_)
      return fmt::format("a world of {} has no other rank {}", world_, hello.rank);
    Guest& guest = guests_[static_cast<std::size_t>(hello.rank)];
    if (confirmed(guest) && !guest.peer.wire.ended())
      return fmt::format("rank {} is already here, from {}", hello.rank, guest.peer.node);
    return "";
  }

  static bool confirmed(Guest& guest) {
    guest.confirmed = guest.confirmed || guest.peer.wire.spoken_to();
    return guest.confirmed;
  }

  bool all_confirmed() { return std::all_of(guests_.begin(), guests_.end(), confirmed); }

  std::vector<Wire*> unconfirmed() {
    std::vector<Wire*> wires;
    for (Guest& guest : guests_)
      if (guest.came && !confirmed(guest)) wires.push_back(&guest.peer.wire);
    return wires;
  }

  void look_for_gone() {
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      Guest& guest = guests_[rank];
      if (!guest.came || !guest.peer.wire.ended())
        guest.missed.reset();
      else if (!guest.missed)
        guest.missed.emplace(confirmed(guest) ? 0 : come_again_s);
      if (guest.missed && guest.missed->over())
        give_up(fmt::format("start-up: rank {} on {} came, and its process has ended", rank,
                            guest.peer.node));
    }
  }

  /// The ranks that came get the reason, as the answer to their first meeting.
  [[noreturn]] void give_up(const std::string& why) {
    std::vector<Wire*> wires;
    for (Guest& guest : guests_) {
      if (guest.peer.wire.open()) guest.peer.wire.send(refused + why);
      wires.push_back(&guest.peer.wire);
    }
    // Closing a connection with unread data would discard what was just sent: read it first.
    const auto open = [](const Wire* wire) { return wire->open(); };
    for (Countdown left(last_words_s);
         std::any_of(wires.begin(), wires.end(), open) && !left.over(); wait_for(wires))
      for (Wire* wire : wires)
        while (wire->open() && wire->receive()) continue;
    throw comm::MissingRanks(why);
  }

  std::vector<int> here() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < guests_.size(); ++rank)
      if (guests_[rank].came) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }

  std::map<std::string, int> came_from() const {
    std::map<std::string, int> came;
    for (const Guest& guest : guests_)
      if (guest.came) ++came[guest.peer.node];
    return came;
  }

  bool somewhere_mates_wait() const {
    std::map<std::string, int> came = came_from();
    for (std::size_t i = 0; i < place_.nodes.size(); ++i)
      if (const int here = came[place_.nodes[i]]; here > 0 && here < place_.ranks_on_node[i])
        return true;
    return false;
  }

  /// "ranks 2-3 did not come within 60 s: from node2 came 0 of 2 (is /home/u/.lockstep the same
  /// there?)"
  std::string absence(double deadline_s) const {
    std::map<std::string, int> came = came_from();
    std::string text =
        fmt::format("start-up: {} did not come to {} within {} s",
                    comm::rank_list(comm::all_but(here(), world_)), place_.node, deadline_s);
    const char* separator = ": from ";
    bool none_came = false;
    for (std::size_t i = 0; i < place_.nodes.size(); ++i) {
      const std::string& node = place_.nodes[i];
      if (came[node] == place_.ranks_on_node[i]) continue;
      none_came = none_came || came[node] == 0;
      text +=
          fmt::format("{}{} came {} of {}", separator, node, came[node], place_.ranks_on_node[i]);
      separator = ", ";
    }
    if (none_came)
      text += fmt::format(" (is {} the same there?)", place_.file.parent_path().string());
    if (door_.strangers() > 0)
      text += fmt::format("; {} did not know the secret in {}",
                          counted(door_.strangers(), "connection"), place_.file.string());
    return text;
  }

  const cluster::MeetingPlace& place_;
  int world_;
  cluster::MeetingCard card_;
  CardKeeper card_keeper_;
  HandshakeServer door_;
  std::vector<Guest> guests_;  ///< by rank; with rank 0
};

}  // namespace

void check_not_cancelled(const comm::MeetingSpec& spec) {
  if (spec.stop.stop_requested()) throw Error("start-up: this meeting was cancelled");
}

std::vector<Peer> accept_all_ranks(const cluster::MeetingPlace& place,
                                   const cluster::RankInfo& self, const comm::MeetingSpec& spec) {
  return Reception(place, self).wait(spec);
}

}  // namespace lockstep::tcp

namespace lockstep::comm {

std::string ended_text(std::string_view why) {
  return std::string(tcp::ended) + std::string(why.substr(0, tcp::handshake_limit / 2));
}

void turn_ranks_away(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                     std::string_view why, double within_s) {
  tcp::Reception(place, self).turn_away(why, within_s);
}

}  // namespace lockstep::comm
