#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/comm/worlds/tcp_communicator.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "ports/tcp/mesh/mesh.hpp"

namespace lockstep::tcp {
namespace {

/// During the wait this rank tells those that ask for which ranks it waits; when the deadline has
/// passed, this rank asks. When all answer, it looks two seconds longer: a late rank may have come
/// just then.
///
/// poll() throws MissingRanks when one of the ranks has gone and no heartbeat tells more.
class MeshDeadline final : public comm::WaitDeadline {
 public:
  /// `phase` is what errors call the wait. `find_absence` may be empty.
  MeshDeadline(Mesh& mesh, double deadline_s, const comm::FindAbsence& find_absence,
               std::string phase, comm::Awaited awaited);
  ~MeshDeadline() override;
  MeshDeadline(const MeshDeadline&) = delete;
  MeshDeadline& operator=(const MeshDeadline&) = delete;

  void renew() override;
  void poll() override;  ///< also answers other ranks

 private:
  void look(const std::vector<int>& awaited);
  [[noreturn]] void end_without(const std::vector<int>& gone);
  void ask(const std::vector<int>& awaited);
  [[noreturn]] void give_up();
  [[noreturn]] void end_all(const comm::WaitFinding& found);

  Mesh& mesh_;
  const double deadline_s_;
  const comm::FindAbsence& find_absence_;
  const std::string phase_;
  const comm::Awaited awaited_;
  double began_s_;  ///< when this rank began to wait
  Countdown left_;
  std::optional<std::vector<int>> free_;  ///< all answered; these did not wait for others
  bool told_ = false;                     ///< that this rank waits
  double look_s_;                         ///< when to look for lost ranks again
  std::optional<double> first_gone_s_;    ///< when a rank was first seen to be gone
};

constexpr double look_every_s = 0.1;

MeshDeadline::MeshDeadline(Mesh& mesh, double deadline_s, const comm::FindAbsence& find_absence,
                           std::string phase, comm::Awaited awaited)
    : mesh_(mesh),
      deadline_s_(deadline_s),
      find_absence_(find_absence),
      phase_(std::move(phase)),
      awaited_(std::move(awaited)),
      began_s_(now_s()),
      left_(deadline_s),
      look_s_(began_s_ + look_every_s) {}

MeshDeadline::~MeshDeadline() {
  if (told_) mesh_.note_wait(this, {});
}

void MeshDeadline::renew() {
  const double now = now_s(), waited_s = now - std::exchange(began_s_, now);
  if (const auto late = std::exchange(free_, std::nullopt))
    comm::warn_of_late(phase_, *late, waited_s, deadline_s_, mesh_.rank());
  left_ = Countdown(deadline_s_);
  look_s_ = now + look_every_s;
  if (std::exchange(told_, false)) mesh_.note_wait(this, {});
}

void MeshDeadline::poll() {
  const double now = now_s();
  const bool due = now >= look_s_;
  // What has just come may be the last words of a rank that has gone.
  if ((due || mesh_.connecting()) && mesh_.move()) return;
  if (!due) return;
  look_s_ = now + look_every_s;
  look(awaited_());
}

void MeshDeadline::look(const std::vector<int>& awaited) {
  mesh_.note_wait(this, awaited);
  told_ = true;
  if (const auto told = mesh_.finding(); !told.text.empty()) comm::end_wait(told);
  std::vector<int> gone = awaited;
  std::erase_if(gone, [&](int rank) { return !mesh_.link(rank).gone(); });
  if (!gone.empty() && !first_gone_s_) first_gone_s_ = now_s();
  // The heartbeat knows which rank was lost first, and ends this process.
  const double patience_s = find_absence_ ? comm::time_for_heartbeat_s : 0;
  if (!gone.empty() && now_s() - *first_gone_s_ >= patience_s) end_without(gone);
  if (!left_.over()) return;
  if (free_) give_up();
  ask(awaited);
}

/// The connections to these ranks have ended. A heartbeat takes other ways and connects again, so
/// it may know that a rank is alive.
void MeshDeadline::end_without(const std::vector<int>& gone) {
  const auto absence = find_absence_ ? find_absence_(deadline_s_) : std::nullopt;
  const bool alive = absence && std::ranges::none_of(gone, [&](int rank) {
                       return std::ranges::count(absence->ranks, rank) > 0;
                     });
  if (!alive)
    throw comm::MissingRanks(fmt::format("{}: {} {} gone", phase_, comm::rank_list(gone),
                                         gone.size() == 1 ? "has" : "have"));
  end_all({fmt::format("{}: the connection between {} and {}, where {} is alive, broke: does the "
                       "network between these nodes work?",
                       phase_, mesh_.host_of(mesh_.rank()), mesh_.host_of(gone.front()),
                       comm::rank_list({gone.front()})),
           Ending::network});
}

/// Asks the heartbeats first, which mostly know, then the ranks.
void MeshDeadline::ask(const std::vector<int>& awaited) {
  const auto absence = find_absence_ ? find_absence_(deadline_s_) : std::nullopt;
  if (absence && absence->nearer) {
    left_ = Countdown(deadline_s_);
    return;
  }
  std::vector<int> missing = absence ? absence->ranks : std::vector<int>();
  const bool known = !missing.empty();
  std::vector<int> free;
  if (!known) {
    RollCallResult result = mesh_.ask(awaited);
    missing = std::move(result.mute);
    free = std::move(result.free);
  }
  if (const auto told = mesh_.finding(); !told.text.empty()) comm::end_wait(told);
  if (missing.empty()) {
    free_ = std::move(free);
    left_ = Countdown(comm::look_longer_s);
    return;
  }
  const std::string late = fmt::format("{}: {} did not arrive within {} s", phase_,
                                       comm::rank_list(missing), deadline_s_);
  end_all(known ? absence->finding(late) : comm::WaitFinding{late});
}

/// All answer, and still nothing came. Where all wait for each other, it is the network's fault.
void MeshDeadline::give_up() {
  if (free_->empty())
    end_all({fmt::format("{}: nothing came for {} s, though all ranks answer", phase_, deadline_s_),
             Ending::network});
  end_all(
      {fmt::format("{}: {} did not arrive within {} s, though {}", phase_, comm::rank_list(*free_),
                   deadline_s_, free_->size() == 1 ? "it answers" : "they answer")});
}

void MeshDeadline::end_all(const comm::WaitFinding& found) {
  mesh_.tell(found);
  comm::end_wait(found);
}

}  // namespace

namespace {

class MeshTransport final : public comm::Transport {
 public:
  MeshTransport(comm::Control& control, comm::TcpSpec spec)
      : spec_(std::move(spec)), mesh_(control, spec_.host, staging_) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    return mesh_.link(to).send(tag, data, bytes);
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    return mesh_.link(from).expect(tag, data, bytes);
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    return mesh_.link(from).expect(tag, nullptr, bytes);
  }
  bool progress() override { return mesh_.move(); }
  std::unique_ptr<comm::WaitDeadline> deadline(std::string phase, comm::Awaited awaited) override {
    return std::make_unique<MeshDeadline>(mesh_, spec_.deadline_s, spec_.find_absence,
                                          std::move(phase), std::move(awaited));
  }
  bool copies() const override { return true; }

 private:
  const comm::TcpSpec spec_;
  comm::Staging staging_;
  Mesh mesh_;
};

}  // namespace

}  // namespace lockstep::tcp

namespace lockstep::comm {

std::unique_ptr<Communicator> make_tcp_communicator(Control& control, const TcpSpec& spec) {
  const int world = control.world();
  return make_direct_communicator(
      world > 1 ? std::make_unique<tcp::MeshTransport>(control, spec) : nullptr, control.rank(),
      world, control.activity);
}

}  // namespace lockstep::comm
