#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "tcp/countdown.hpp"
#include "tcp/handshake.hpp"
#include "tcp/meet.hpp"

namespace lockstep::comm {
namespace {

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
    const sys::MeetingCard card = sys::new_card({place.node, self.host}, listener_.port);
    secret_ = card.secret;
    sys::leave_card(place.file, card);
  }
  // Nobody comes later: the word would only mislead a later start.
  ~Reception() { unlink(place_.file.c_str()); }
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  std::vector<Peer> wait(double deadline_s) {
    Countdown left(deadline_s);
    while (here_.size() < peers_.size()) {
      sleep();
      admit();
      hear();
      if (here_.size() < peers_.size() && left.over()) give_up(absence(deadline_s));
    }
    return std::move(peers_);
  }

 private:
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

  /// Those that came hear why, as the answer to their first meeting.
  [[noreturn]] void give_up(const std::string& why) {
    for (Peer& peer : peers_)
      if (peer.wire.open()) peer.wire.send(refused + why);
    throw Error(why);
  }

  /// "ranks 2-3 did not come within 60 s: from node2 came 0 of 2"
  std::string absence(double deadline_s) const {
    std::map<std::string, int> came;
    for (const int rank : here_) ++came[peers_[static_cast<std::size_t>(rank)].node];
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

std::vector<Peer> receive_all(const sys::MeetingPlace& place, const sys::RankInfo& self,
                              double deadline_s) {
  return Reception(place, self).wait(deadline_s);
}

}  // namespace lockstep::comm
