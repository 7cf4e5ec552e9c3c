#include "ports/tcp/mesh/deadline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"

namespace lockstep::comm {
namespace {

constexpr double look_every_s = 0.1;

[[noreturn]] void end(const MeshFinding& finding) {
  if (finding.outside) throw OutsideFault(finding.text);
  throw Error(finding.text);
}

}  // namespace

MeshDeadline::MeshDeadline(MeshHub& hub, std::string_view phase)
    : hub_(hub),
      phase_(phase),
      began_s_(now_s()),
      left_(hub.deadline_s),
      look_s_(began_s_ + look_every_s) {}

MeshDeadline::~MeshDeadline() {
  if (told_) hub_.mesh->note_wait(this, {});
}

void MeshDeadline::renew() {
  const double now = now_s(), waited_s = now - std::exchange(began_s_, now);
  if (const auto late = std::exchange(free_, std::nullopt))
    warn_of_late(phase_, *late, waited_s, hub_.deadline_s, hub_.mesh->rank());
  left_ = Countdown(hub_.deadline_s);
  look_s_ = now + look_every_s;
  if (std::exchange(told_, false)) hub_.mesh->note_wait(this, {});
}

bool MeshDeadline::due() const { return now_s() >= look_s_; }

void MeshDeadline::look(const std::vector<int>& awaited) {
  look_s_ = now_s() + look_every_s;
  Mesh& mesh = *hub_.mesh;
  mesh.note_wait(this, awaited);
  told_ = true;
  if (const MeshFinding told = mesh.finding(); !told.text.empty()) end(told);
  std::vector<int> gone = awaited;
  std::erase_if(gone, [&](int rank) { return !mesh.link(rank).gone(); });
  if (!gone.empty() && !first_gone_s_) first_gone_s_ = now_s();
  // The heartbeat knows which rank was lost first, and ends this process.
  const double patience_s = hub_.find_absence ? time_for_heartbeat_s : 0;
  if (!gone.empty() && now_s() - *first_gone_s_ >= patience_s)
    throw MissingRanks(
        fmt::format("{}: {} {} gone", phase_, rank_list(gone), gone.size() == 1 ? "has" : "have"));
  if (!left_.over()) return;
  if (free_) give_up();
  ask(awaited);
}

/// Asks the heartbeats first, which mostly know, then the ranks.
void MeshDeadline::ask(const std::vector<int>& awaited) {
  Mesh& mesh = *hub_.mesh;
  const auto absence = hub_.find_absence ? hub_.find_absence(hub_.deadline_s) : std::nullopt;
  std::vector<int> missing = absence ? absence->ranks : std::vector<int>();
  const bool known = !missing.empty();
  std::vector<int> free;
  if (!known) {
    RollCallResult result = mesh.ask(awaited);
    missing = std::move(result.mute);
    free = std::move(result.free);
  }
  if (const MeshFinding told = mesh.finding(); !told.text.empty()) end(told);
  if (missing.empty()) {
    free_ = std::move(free);
    left_ = Countdown(look_longer_s);
    return;
  }
  MeshFinding found;
  found.text =
      fmt::format("{}: {} did not arrive within {} s", phase_, rank_list(missing), hub_.deadline_s);
  found.outside = known && absence->outside;
  if (found.outside) found.text += "; " + absence->text;
  end_all(found);
}

/// All answer, and still nothing came. Where all wait for each other, it is the network's fault.
void MeshDeadline::give_up() {
  if (free_->empty())
    end_all(
        {fmt::format("{}: nothing came for {} s, though all ranks answer", phase_, hub_.deadline_s),
         true});
  end_all({fmt::format("{}: {} did not arrive within {} s, though {}", phase_, rank_list(*free_),
                       hub_.deadline_s, free_->size() == 1 ? "it answers" : "they answer"),
           false});
}

void MeshDeadline::end_all(const MeshFinding& found) {
  hub_.mesh->tell(found);
  end(found);
}

}  // namespace lockstep::comm
