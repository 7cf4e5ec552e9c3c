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
#include "lockstep/base/countdown.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/tcp/own_addresses.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* purpose = "tensors";  // stands for the job in a hello
constexpr double pause_s = 0.2;             // between two tries to connect
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

}  // namespace

Mesh::Mesh(Control& control, const std::string& host, Staging& staging)
    : rank_(control.rank()), events_(epoll_create1(EPOLL_CLOEXEC)) {
  check(static_cast<bool>(events_), "epoll_create1");
  allow_connections(control.world());
  const std::array<std::uint16_t, 1> any{0};
  Listener listener = listen_on(any);
  card_ = {new_nonce(), listener.port, own_addresses()};
  door_.emplace(card_.secret, std::move(listener));
  for (MeshCard& theirs :
       gather_records(control, MeshCard{card_, host}, "connections between the ranks")) {
    if (theirs.host == host)
      theirs.card.addresses.insert(theirs.card.addresses.begin(), "127.0.0.1");
    peers_.push_back(std::make_unique<Peer>(world(), staging, answer_));
    peers_.back()->card = std::move(theirs.card);
  }
}

Link& Mesh::link(int rank) {
  Peer& other = peer(rank);
  if (!std::exchange(other.wanted, true) && !other.link.open()) ++unconnected_;
  return other.link;
}

bool Mesh::move() {
  bool moved = unconnected_ > 0 && connect();
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    Peer& other = peer(static_cast<int>(ready[static_cast<std::size_t>(i)].data.u32));
    moved = other.link.read() || moved;
    moved = other.link.write() || moved;
    const bool lost = !other.link.open() && !other.link.gone();
    if (lost && other.wanted) ++unconnected_;  // the other side has given up this connection
  }
  return moved;
}

/// Continues what is on the way to a connection; true when one was made.
bool Mesh::connect() {
  const int before = unconnected_;
  for (int rank = 0; rank < rank_; ++rank)
    if (Peer& other = peer(rank); other.wanted && !other.link.open() && !other.link.gone())
      try_to_connect(other);
  const auto refusal = [this](const Hello& hello) -> std::string {
    const bool right = hello.job == purpose && hello.world == world() && hello.rank > rank_ &&
                       hello.rank < world() && !peer(hello.rank).link.confirmed();
    return right ? "" : "not a rank that is expected here";
  };
  door_->admit(refusal,
               [this](const Hello& hello, Wire wire) { take(hello.rank, wire.take_socket()); });
  return unconnected_ < before;
}

void Mesh::try_to_connect(Peer& other) {
  if (!other.attempt) {
    if (now_s() < other.again_s) return;
    other.attempt.emplace(other.card, purpose, rank_, world());
  }
  if (auto wire = other.attempt->poll()) {
    other.attempt.reset();
    const auto at = std::find_if(peers_.begin(), peers_.end(),
                                 [&](const auto& one) { return one.get() == &other; });
    take(static_cast<int>(at - peers_.begin()), wire->take_socket());
  } else if (other.attempt->failed()) {
    other.attempt.reset();
    other.again_s = now_s() + pause_s;
  }
}

/// A new connection, which replaces one that the other side has given up.
void Mesh::take(int rank, Socket socket) {
  Link& link = peer(rank).link;
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  interest.data.u32 = static_cast<std::uint32_t>(rank);
  check(epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket.get(), &interest) == 0, "epoll_ctl");
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

std::vector<int> Mesh::silent(const std::vector<int>& ranks) {
  ++questions_;
  std::set<int> asked, mute;
  const auto ask = [&](int rank) {
    if (rank < 0 || rank >= world() || rank == rank_ || !asked.insert(rank).second) return;
    mute.insert(rank);
    if (Link& other = link(rank); !other.gone()) other.notify(Notice::question, questions_);
  };
  for (const int rank : ranks) ask(rank);
  wait(time_to_answer_s, [&] {
    std::vector<int> more;
    std::erase_if(mute, [&](int rank) {
      const Link& other = peer(rank).link;
      if (other.answered() != questions_) return false;
      const std::size_t before = more.size();
      more.resize(before + other.answer().size() / sizeof(int));
      std::memcpy(more.data() + before, other.answer().data(),
                  (more.size() - before) * sizeof(int));
      return true;
    });
    for (const int rank : more) ask(rank);
    return mute.empty();
  });
  return {mute.begin(), mute.end()};
}

void Mesh::await_finding() {
  wait(time_to_answer_s, [this] { return !finding().text.empty(); });
}

void Mesh::tell(const MeshFinding& finding) {
  for (const auto& other : peers_)
    if (other->link.open()) other->link.notify(Notice::finding, finding.outside, finding.text);
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

MeshFinding Mesh::finding() const {
  for (const auto& other : peers_)
    if (!other->link.finding().text.empty()) return other->link.finding();
  return {};
}

}  // namespace lockstep::comm
