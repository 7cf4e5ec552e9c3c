#include "ports/tcp/mesh/deadline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "lockstep/comm/tcp_control.hpp"

namespace lockstep::comm {
namespace {

constexpr double look_every_s = 0.1;

[[noreturn]] void end(const MeshFinding& finding) {
  if (finding.outside) throw OutsideFault(finding.text);
  throw Error(finding.text);
}

}  // namespace

MeshDeadline::MeshDeadline(MeshHub& hub, std::string_view phase)
    : hub_(hub), phase_(phase), left_(hub.deadline_s), look_s_(now_s() + look_every_s) {}

MeshDeadline::~MeshDeadline() {
  if (told_) hub_.mesh->note_wait(this, {});
}

void MeshDeadline::renew() {
  left_ = Countdown(hub_.deadline_s);
  look_s_ = now_s() + look_every_s;
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
  if (left_.over()) give_up(awaited);
}

/// Asks the heartbeats first, which mostly know, then the ranks.
void MeshDeadline::give_up(const std::vector<int>& awaited) {
  Mesh& mesh = *hub_.mesh;
  const auto absence = hub_.find_absence ? hub_.find_absence(hub_.deadline_s) : std::nullopt;
  std::vector<int> missing = absence ? absence->ranks : std::vector<int>();
  const bool known = !missing.empty();
  if (!known) missing = mesh.silent(awaited);
  // When all answer, another one that waits may know more.
  if (missing.empty()) mesh.await_finding();
  if (const MeshFinding told = mesh.finding(); !told.text.empty()) end(told);
  MeshFinding found;
  if (missing.empty()) {
    found = {
        fmt::format("{}: nothing came for {} s, though all ranks answer", phase_, hub_.deadline_s),
        true};
  } else {
    found.text = fmt::format("{}: {} did not arrive within {} s", phase_, rank_list(missing),
                             hub_.deadline_s);
    found.outside = known && absence->outside;
    if (found.outside) found.text += "; " + absence->text;
  }
  mesh.tell(found);
  end(found);
}

}  // namespace lockstep::comm
