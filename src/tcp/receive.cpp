#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "lockstep/base/countdown.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "tcp/handshake.hpp"
#include "tcp/heartbeat_wire.hpp"
#include "tcp/meet.hpp"

namespace lockstep::comm {
namespace {

constexpr double last_words_s = 1;
constexpr std::size_t most_addresses = 32;

/// A connection that has not proved who it is.
struct Candidate {
  Wire wire;
  Nonce nonce;
};

/// Rank 0 while the ranks come.
class Reception {
 public:
  Reception(const sys::MeetingPlace& place, const sys::RankInfo& self)
      : place_(place), world_(self.world), listener_(listen_on(place.ports)) {
    peers_.resize(static_cast<std::size_t>(world_));
    peers_[0].node = place.node;
    const sys::MeetingCard card = sys::new_card(own_names(self), listener_.port);
    secret_ = card.secret;
    sys::leave_card(place.file, card);
  }
  // Nobody comes later: the word would only mislead a later start.
  ~Reception() { unlink(place_.file.c_str()); }
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  std::vector<Peer> wait(const MeetingPatience& patience) {
    Countdown left(patience.deadline_s), mates_left(patience.mates_s);
    for (std::size_t came = here_.size(); here_.size() < peers_.size();) {
      require_on(patience);
      sleep();
      admit();
      hear();
      if (here_.size() == peers_.size()) break;  // who goes again now, the next meeting names
      look_for_gone();
      if (std::exchange(came, here_.size()) != here_.size())
        mates_left = Countdown(patience.mates_s);
      if (left.over()) give_up(absence(patience.deadline_s));
      // A node from which nobody came may still be starting; a rank whose mates are here is not.
      if (mates_left.over() && somewhere_mates_wait()) give_up(absence(patience.mates_s));
    }
    return std::move(peers_);
  }

 private:
  /// Names first, which the site has chosen; then addresses.
  std::vector<std::string> own_names(const sys::RankInfo& self) const {
    std::vector<std::string> names = own_addresses();
    if (names.size() > most_addresses) names.resize(most_addresses);
    names.insert(names.begin(), {place_.node, self.host});
    names.emplace_back("127.0.0.1");
    return names;
  }

  void sleep() {
    std::vector<Wire*> wires;
    for (Candidate& candidate : candidates_) wires.push_back(&candidate.wire);
    wait_for(wires, &listener_);
  }

  void admit() {
    while (Socket socket = accept_on(listener_)) {
      Candidate& candidate =
          candidates_.emplace_back(Wire(std::move(socket), handshake_limit), new_nonce());
      candidate.wire.send(make_greeting(candidate.nonce));
      if (candidates_.size() > most_candidates) candidates_.pop_front();
    }
  }

  void hear() {
    candidates_.remove_if([&](Candidate& candidate) {
      candidate.wire.flush();
      const auto message = candidate.wire.receive();
      if (!message) return !candidate.wire.open();
      judge(candidate, *message);
      return true;
    });
  }

  void judge(Candidate& candidate, const std::string& message) {
    const auto heard = read_hello(secret_, candidate.nonce, message);
    if (!heard) {
      ++strangers_;
      return;
    }
    const Hello& hello = heard->hello;
    const std::string refusal = reason_against(hello);
    candidate.wire.send(make_answer(secret_, candidate.nonce, heard->peer, refusal));
    if (!refusal.empty()) return;
    Peer& peer = peers_[static_cast<std::size_t>(hello.rank)];
    peer.node = hello.node;
    peer.wire = std::move(candidate.wire);
    peer.wire.set_limit(message_limit);
    here_.push_back(hello.rank);
  }

  std::string reason_against(const Hello& hello) const {
    if (hello.job != place_.job)
      return fmt::format("rank 0 is of {}, this peer of {}", place_.job, hello.job);
    if (hello.world != world_)
      return fmt::format("rank 0 has a world of {}, this peer one of {}", world_, hello.world);
    if (hello.rank <= 0 || hello.rank >= world_)
      return fmt::format("a world of {} has no other rank {}", world_, hello.rank);
    if (std::find(here_.begin(), here_.end(), hello.rank) != here_.end())
      return fmt::format("rank {} has come already, from {}", hello.rank,
                         peers_[static_cast<std::size_t>(hello.rank)].node);
    return "";
  }

  void look_for_gone() {
    for (std::size_t rank = 1; rank < peers_.size(); ++rank)
      if (peers_[rank].wire.open() && peers_[rank].wire.ended())
        give_up(fmt::format("start-up: rank {} on {} came, and its process has ended", rank,
                            peers_[rank].node));
  }

  /// Those that came hear why, as the answer to their first meeting.
  [[noreturn]] void give_up(const std::string& why) {
    std::vector<Wire*> wires;
    for (Peer& peer : peers_) {
      if (peer.wire.open()) peer.wire.send(refused + why);
      wires.push_back(&peer.wire);
    }
    // A connection that is closed over words not yet heard takes its own last ones along.
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
    if (strangers_ > 0)
      text += fmt::format("; {} connection(s) did not know the secret in {}", strangers_,
                          place_.file.string());
    return text;
  }

  const sys::MeetingPlace& place_;
  int world_;
  Listener listener_;
  Key secret_{};
  std::list<Candidate> candidates_;
  std::vector<Peer> peers_;
  std::vector<int> here_{0};
  int strangers_ = 0;
};

}  // namespace

void require_on(const MeetingPatience& patience) {
  if (patience.stop.stop_requested()) throw Error("start-up: this meeting is off");
}

std::vector<Peer> receive_all(const sys::MeetingPlace& place, const sys::RankInfo& self,
                              const MeetingPatience& patience) {
  return Reception(place, self).wait(patience);
}

}  // namespace lockstep::comm
