#include "ports/tcp/mesh/mesh.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {
namespace {

// Stands for the job in the hello of a rank that calls one with a higher number, which then
// connects.
constexpr const char* call = "call";
constexpr double pause_s = 0.2;        // between two tries to connect
constexpr double door_every_s = 0.01;  // of a rank that needs no more connections
constexpr int longest_wait_ms = 50, while_connecting_ms = 2;

/// Where a rank listens, and on which host.
struct MeshCard {
  ListenerCard card;
  std::string host;

  static void fields(auto& self, auto&& visit) { visit(self.card, self.host); }
};

/// This process opens a connection for each other rank, and other files: it may have that many, or
/// as many as its limit lets it. Returns why these are too few, or nothing.
std::string allow_connections(int world) {
  constexpr rlim_t others = 256;
  const rlim_t wanted = static_cast<rlim_t>(world) + others;
  rlimit limit{};
  check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  }
  if (limit.rlim_cur >= wanted) return "";
  return fmt::format(
      "{} ranks that communicate over TCP need {} open files each, but the limit is {}: raise it "
      "(ulimit -n)",
      world, wanted, limit.rlim_cur);
}

// The heartbeats need longer than the system's own limit to say what is wrong with a network.
constexpr unsigned unanswered_s = 300;

class MeshTransport final : public comm::Transport {
 public:
  MeshTransport(Mesh& mesh, std::uint32_t number)
      : mesh_(mesh), first_kind_(first_transport + number * comm::message_kinds) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    return mesh_.link(to).send(in_mesh(tag), data, bytes);
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    return mesh_.link(from).expect(in_mesh(tag), data, bytes);
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    return mesh_.link(from).expect(in_mesh(tag), nullptr, bytes);
  }
  bool progress() override { return mesh_.move(); }
  bool copies() const override { return true; }
  std::unique_ptr<comm::Transport> make_other(comm::WaitDeadline& deadline) override {
    return mesh_.make_transport(deadline);
  }

 private:
  comm::MessageTag in_mesh(comm::MessageTag tag) const {
    return {first_kind_ + tag.kind, tag.number};
  }
  Mesh& mesh_;
  const std::uint32_t first_kind_;
};

}  // namespace

Mesh::Mesh(MeshSpec spec) : spec_(std::move(spec)), events_(epoll_create1(EPOLL_CLOEXEC)) {
  check(static_cast<bool>(events_), "epoll_create1");
  allow_connections(world());
  Listener listener = listen_on(spec_.ports);
  card_ = {spec_.secret ? *spec_.secret : new_nonce(), listener.port, own_addresses()};
  door_.emplace(card_.secret, std::move(listener));
  watch(door_->handle(), rank(), EPOLLIN);
  for (int from = 0; from < world(); ++from)
    peers_.push_back(
        std::make_unique<Peer>(staging_, [this, from](comm::LetterKind kind, std::string text) {
          letters_[static_cast<std::size_t>(kind)].push_back({from, std::move(text)});
        }));
}

void Mesh::introduce(comm::Control& control) {
  const auto cards =
      comm::gather_records(control, MeshCard{card_, spec_.host}, "connections between the ranks");
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    Peer& other = *peers_[rank];
    other.card = cards[rank].card;
    other.host = cards[rank].host;
    if (other.host == spec_.host)
      other.card.addresses.insert(other.card.addresses.begin(), "127.0.0.1");
  }
  introduced_ = true;
}

std::unique_ptr<comm::Transport> Mesh::make_transport(comm::WaitDeadline&) {
  const std::string too_few = allow_connections(world());
  require(too_few.empty(), too_few);
  return std::make_unique<MeshTransport>(*this, transports_++);
}

std::string Mesh::host_of(int rank) const {
  if (rank == spec_.rank) return spec_.host;
  return peer(rank).host.empty() ? peer(rank).node : peer(rank).host;
}

Link& Mesh::link(int rank) {
  Peer& other = peer(rank);
  if (!std::exchange(other.wanted, true) && !other.link.open()) ++unconnected_;
  return other.link;
}

void Mesh::send(const std::vector<int>& ranks, comm::LetterKind kind, std::string text) {
  const auto shared = std::make_shared<const std::string>(std::move(text));
  for (const int to : ranks) {
    Peer& other = peer(to);
    if (other.link.gone() || (!introduced_ && !other.link.open())) continue;
    if (!other.link.open() && to > rank()) other.called = true;
    link(to).post(kind, shared);
  }
}

std::optional<comm::Letter> Mesh::take(comm::LetterKind kind) {
  std::deque<comm::Letter>& come = letters_[static_cast<std::size_t>(kind)];
  if (come.empty()) move();
  if (come.empty()) return std::nullopt;
  comm::Letter letter = std::move(come.front());
  come.pop_front();
  return letter;
}

std::vector<int> Mesh::unsent() {
  std::vector<int> ranks;
  for (int to = 0; to < world(); ++to)
    if (link_of(to).unsent()) ranks.push_back(to);
  return ranks;
}

void Mesh::wait() { move(connecting() ? while_connecting_ms : longest_wait_ms); }

bool Mesh::move(int wait_ms) {
  bool moved = false, knocked = false;
  std::array<epoll_event, 64> ready;
  const int count =
      epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), wait_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    const int from = static_cast<int>(event.data.u32);
    knocked = knocked || from == rank();
    if (from == rank()) continue;
    moved = hear(from, (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) || moved;
  }
  // A rank that needs no connection is asked by others, too. Where tensors move, it must not take
  // long when there are strangers at the door.
  const bool idle_door =
      unconnected_ == 0 && (knocked || door_->busy()) && (transports_ == 0 || now_s() >= door_s_);
  if (unconnected_ > 0 || idle_door) moved = connect() || moved;
  if (idle_door) door_s_ = now_s() + door_every_s;
  return moved;
}

/// Reads and writes what that rank's connection has and takes.
bool Mesh::hear(int from, bool ends) {
  Peer& other = peer(from);
  const bool was_open = other.link.open();
  bool moved = other.link.read(ends);
  moved = other.link.write() || moved;
  const bool lost = was_open && !other.link.open() && !other.link.gone();
  if (lost && other.wanted) ++unconnected_;  // the other side has given up this connection
  if (from == 0 && other.link.gone() && rank_0_gone) std::exchange(rank_0_gone, nullptr)();
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
  for (int to = 0; to < world(); ++to) {
    const Peer& other = peer(to);
    if (other.link.open() || other.link.gone()) continue;
    if (to < rank() ? other.wanted : other.called) try_to_connect(to);
  }
  const auto refusal = [this](const Hello& hello) {
    const std::string wrong = reason_against(hello);
    if (!wrong.empty() || farewell_.empty()) return wrong;
    told_.insert(hello.rank);
    return farewell_;
  };
  door_->admit(refusal, [this](const Hello& hello, Wire wire) {
    if (hello.job == call) {
      link(hello.rank);
    } else {
      peer(hello.rank).node = hello.node;
      take_in(hello.rank, wire.take_socket());
    }
  });
  return unconnected_ < before;
}

/// A rank that has not confirmed may come again.
std::string Mesh::reason_against(const Hello& hello) {
  const bool calls = hello.job == call;
  if (!calls && hello.job != spec_.job)
    return fmt::format("rank {} belongs to {}, this peer to {}", rank(), spec_.job, hello.job);
  if (hello.world != world())
    return fmt::format("rank {} has a world of {}, this peer one of {}", rank(), world(),
                       hello.world);
  const bool expected = hello.rank >= 0 && hello.rank < world() &&
                        (calls ? hello.rank < rank() : hello.rank > rank());
  if (!expected) return fmt::format("a world of {} has no other rank {}", world(), hello.rank);
  if (calls) return "";
  // Its confirmation may have come since the last look.
  if (!link_of(hello.rank).confirmed()) hear(hello.rank, false);
  if (!link_of(hello.rank).confirmed()) return "";
  return fmt::format(
      "rank {} is already here, from {}{}", hello.rank, came_from(hello.rank),
      spec_.start.empty() ? "" : fmt::format(", in start {} of rank 0", spec_.start));
}

void Mesh::try_to_connect(int to) {
  Peer& other = peer(to);
  if (!other.attempt) {
    if (now_s() < other.again_s) return;
    other.attempt.emplace(other.card, to < rank() ? spec_.job : call, rank(), world(), spec_.node);
  }
  if (auto wire = other.attempt->poll()) {
    other.attempt.reset();
    if (!std::exchange(other.called, false)) take_in(to, wire->take_socket());
  } else if (other.attempt->failed()) {
    other.attempt.reset();
    other.again_s = now_s() + pause_s;
  }
}

void Mesh::take_in(int from, Socket socket) {
  Link& link = peer(from).link;
  outlast_silence(socket, unanswered_s);
  watch(socket.get(), from, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!link.open() && peer(from).wanted) --unconnected_;
  link.connect(std::move(socket), from < rank());
}

}  // namespace lockstep::tcp
