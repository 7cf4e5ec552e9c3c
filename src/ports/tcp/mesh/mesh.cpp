#include "ports/tcp/mesh/mesh.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {
namespace {

// Stand for the job in a hello. A rank calls one with a higher number, which then connects.
constexpr const char *purpose = "tensors", *call = "call";
constexpr double pause_s = 0.2;        // between two tries to connect
constexpr double door_every_s = 0.01;  // of a rank that needs no more connections
constexpr double time_to_answer_s = 2, last_words_s = 1;

/// Where a rank listens, and on which host.
struct MeshCard {
  ListenerCard card;
  std::string host;

  static void fields(auto& self, auto&& visit) { visit(self.card, self.host); }
};

/// This process opens a connection for each other rank, and other files.
void allow_connections(int world) {
  constexpr rlim_t others = 256;
  const rlim_t wanted = static_cast<rlim_t>(world) + others;
  rlimit limit{};
  check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  if (limit.rlim_cur >= wanted) return;
  require(limit.rlim_max >= wanted,
          fmt::format("{} ranks that communicate over TCP need {} open files each, but the limit "
                      "is {}: raise it (ulimit -n)",
                      world, wanted, limit.rlim_max));
  limit.rlim_cur = wanted;
  check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

// The heartbeats need longer than the system's own limit to say what is wrong with a network.
constexpr unsigned unanswered_s = 300;

}  // namespace

Mesh::Mesh(comm::Control& control, const std::string& host, comm::Staging& staging)
    : rank_(control.rank()), events_(epoll_create1(EPOLL_CLOEXEC)) {
  check(static_cast<bool>(events_), "epoll_create1");
  allow_connections(control.world());
  const std::array<std::uint16_t, 1> any{0};
  Listener listener = listen_on(any);
  card_ = {new_nonce(), listener.port, own_addresses()};
  door_.emplace(card_.secret, std::move(listener));
  watch(door_->handle(), rank_, EPOLLIN);
  for (MeshCard& theirs :
       comm::gather_records(control, MeshCard{card_, host}, "connections between the ranks")) {
    if (theirs.host == host)
      theirs.card.addresses.insert(theirs.card.addresses.begin(), "127.0.0.1");
    peers_.push_back(std::make_unique<Peer>(staging, answer_));
    peers_.back()->card = std::move(theirs.card);
    peers_.back()->host = std::move(theirs.host);
  }
}

Link& Mesh::link(int rank) {
  Peer& other = peer(rank);
  if (!std::exchange(other.wanted, true) && !other.link.open()) ++unconnected_;
  return other.link;
}

bool Mesh::move() {
  bool moved = false, knocked = false;
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    const int from = static_cast<int>(event.data.u32);
    knocked = knocked || from == rank_;
    if (from == rank_) continue;
    Peer& other = peer(from);
    moved = other.link.read((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) || moved;
    moved = other.link.write() || moved;
    const bool lost = !other.link.open() && !other.link.gone();
    if (lost && other.wanted) ++unconnected_;  // the other side has given up this connection
  }
  // A rank that needs no connection is asked by others, too. It must not take long when there
  // are strangers at the door.
  const bool idle_door = unconnected_ == 0 && (knocked || door_->busy()) && now_s() >= door_s_;
  if (unconnected_ > 0 || idle_door) moved = connect() || moved;
  if (idle_door) door_s_ = now_s() + door_every_s;
  return moved;
}

void Mesh::watch(int handle, int rank, std::uint32_t events) {
  epoll_event interest{};
  interest.events = events;
  interest.data.u32 = static_cast<std::uint32_t>(rank);
  check(epoll_ctl(events_.get(), EPOLL_CTL_ADD, handle, &interest) == 0, "epoll_ctl");
}

/// Continues what is on the way to a connection; true when one was made.
bool Mesh::connect() {
  const int before = unconnected_;
  for (int rank = 0; rank < world(); ++rank) {
    const Peer& other = peer(rank);
    if (other.link.open() || other.link.gone()) continue;
    if (rank < rank_ ? other.wanted : other.called) try_to_connect(rank);
  }
  const auto refusal = [this](const Hello& hello) -> std::string {
    const bool known = hello.world == world() && hello.rank >= 0 && hello.rank < world();
    const bool calls = known && hello.job == call && hello.rank < rank_;
    const bool comes =
        known && hello.job == purpose && hello.rank > rank_ && !peer(hello.rank).link.confirmed();
    return calls || comes ? "" : "not a rank that is expected here";
  };
  door_->admit(refusal, [this](const Hello& hello, Wire wire) {
    if (hello.job == call)
      link(hello.rank);
    else
      take(hello.rank, wire.take_socket());
  });
  return unconnected_ < before;
}

void Mesh::try_to_connect(int rank) {
  Peer& other = peer(rank);
  if (!other.attempt) {
    if (now_s() < other.again_s) return;
    other.attempt.emplace(other.card, rank < rank_ ? purpose : call, rank_, world());
  }
  if (auto wire = other.attempt->poll()) {
    other.attempt.reset();
    if (!std::exchange(other.called, false)) take(rank, wire->take_socket());
  } else if (other.attempt->failed()) {
    other.attempt.reset();
    other.again_s = now_s() + pause_s;
  }
}

/// A new connection, which replaces one that the other side has given up.
void Mesh::take(int rank, Socket socket) {
  Link& link = peer(rank).link;
  outlast_silence(socket, unanswered_s);
  watch(socket.get(), rank, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!link.open() && peer(rank).wanted) --unconnected_;
  link.connect(std::move(socket), rank < rank_);
}

void Mesh::note_wait(const void* owner, const std::vector<int>& awaited) {
  if (awaited.empty())
    waits_.erase(owner);
  else if (std::exchange(waits_[owner], awaited) == awaited)
    return;
  answer_.clear();
  for (const auto& [waiting, ranks] : waits_)
    answer_.append(reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int));
}

RollCallResult Mesh::ask(const std::vector<int>& ranks) {
  ++questions_;
  std::set<int> asked, mute, free;
  const auto ask = [&](int rank) {
    if (rank < 0 || rank >= world() || rank == rank_ || !asked.insert(rank).second) return;
    mute.insert(rank);
    Link& other = link(rank);
    if (!other.gone()) other.notify(Notice::question, questions_);
    if (!other.open() && rank > rank_) peer(rank).called = true;
  };
  for (const int rank : ranks) ask(rank);
  wait(time_to_answer_s, [&] {
    std::vector<int> more;
    std::erase_if(mute, [&](int rank) {
      const Link& other = peer(rank).link;
      if (other.answered() != questions_) return false;
      if (other.answer().empty()) free.insert(rank);
      const std::size_t before = more.size();
      more.resize(before + other.answer().size() / sizeof(int));
      std::memcpy(more.data() + before, other.answer().data(),
                  (more.size() - before) * sizeof(int));
      return true;
    });
    for (const int rank : more) ask(rank);
    return mute.empty();
  });
  return {{mute.begin(), mute.end()}, {free.begin(), free.end()}};
}

void Mesh::tell(const comm::WaitFinding& finding) {
  for (const auto& other : peers_)
    if (other->link.open())
      other->link.notify(Notice::finding, static_cast<std::uint32_t>(finding.ending), finding.text);
  wait(last_words_s, [this] {
    return std::none_of(peers_.begin(), peers_.end(), [](const auto& other) {
      return other->link.open() && other->link.unsent();
    });
  });
}

void Mesh::wait(double within_s, const std::function<bool()>& over) {
  Countdown left(within_s);
  for (device::Idle idle; !over() && !left.over(); idle()) move();
}

comm::WaitFinding Mesh::finding() const {
  for (const auto& other : peers_)
    if (!other->link.finding().text.empty()) return other->link.finding();
  return {};
}

}  // namespace lockstep::tcp
