#include "ports/tcp/mesh/operation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/activity.hpp"
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

std::vector<int> others_of(const MeshGroup& group) {
  std::vector<int> others;
  for (int i = 1; i < group.world(); ++i) others.push_back((group.rank + i) % group.world());
  return others;
}

MeshOperation::MeshOperation(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                             const std::vector<int>& others)
    : group_(std::move(group)),
      tag_(tag),
      phase_(std::move(phase)),
      deadline_(group_->hub->deadline_s) {
  for (const int member : others)
    others_.push_back({member, group_->members[static_cast<std::size_t>(member)]});
}

// Messages are in flight here only when the world is about to end.
MeshOperation::~MeshOperation() {
  for (const Other& other : others_) {
    if (other.unsent + other.missing == 0) continue;
    Link& link = group_->hub->mesh->link(other.rank);
    link.forget(&other.unsent);
    link.forget(&other.missing);
  }
}

bool MeshOperation::advance() {
  Mesh& mesh = *group_->hub->mesh;
  if (!std::exchange(begun_, true)) begin();
  do work();
  while (mesh.move());
  const std::size_t left = this->left();
  if (left == 0) return true;
  if (std::exchange(left_, left) != left) {
    deadline_ = Countdown(group_->hub->deadline_s);
    look_s_ = now_s() + look_every_s;
    activity::moved();
  } else if (now_s() >= look_s_) {
    look_s_ = now_s() + look_every_s;
    look_for_lost_ranks();
  }
  return false;
}

void MeshOperation::send(Other& other, std::size_t part, Elements data) {
  group_->hub->mesh->link(other.rank)
      .send({tag_.group, tag_.operation, static_cast<std::uint32_t>(part)}, data.data, data.bytes(),
            other.unsent);
}

void MeshOperation::expect(Other& other, std::size_t part, Elements data) {
  group_->hub->mesh->link(other.rank)
      .expect({tag_.group, tag_.operation, static_cast<std::uint32_t>(part)}, data.data,
              data.bytes(), other.missing, phase_);
}

std::optional<Arrival> MeshOperation::take(Other& other, std::size_t part, Elements like) {
  return group_->hub->mesh->link(other.rank)
      .take({tag_.group, tag_.operation, static_cast<std::uint32_t>(part)}, like.bytes(), phase_);
}

std::size_t MeshOperation::left() const {
  std::size_t left = 0;
  for (const Other& other : others_) left += other.unsent + other.missing;
  return left;
}

void MeshOperation::look_for_lost_ranks() {
  MeshHub& hub = *group_->hub;
  if (const MeshFinding told = hub.mesh->finding(); !told.text.empty()) end(told);
  std::vector<int> gone = awaited();
  std::erase_if(gone, [&](int rank) { return !hub.mesh->link(rank).gone(); });
  if (!gone.empty() && !first_gone_s_) first_gone_s_ = now_s();
  // The heartbeat knows which rank was lost first, and ends this process.
  const double patience_s = hub.find_absence ? time_for_heartbeat_s : 0;
  if (!gone.empty() && now_s() - *first_gone_s_ >= patience_s)
    throw MissingRanks(
        fmt::format("{}: {} {} gone", phase_, rank_list(gone), gone.size() == 1 ? "has" : "have"));
  if (deadline_.over()) give_up();
}

/// Asks the heartbeats first, which mostly know, then the ranks.
void MeshOperation::give_up() {
  MeshHub& hub = *group_->hub;
  const auto absence = hub.find_absence ? hub.find_absence(hub.deadline_s) : std::nullopt;
  std::vector<int> missing = absence ? absence->ranks : std::vector<int>();
  const bool known = !missing.empty();
  if (!known) missing = hub.mesh->silent(awaited());
  // When all answer, another one that waits may know more.
  if (missing.empty()) hub.mesh->await_finding();
  if (const MeshFinding told = hub.mesh->finding(); !told.text.empty()) end(told);
  MeshFinding found;
  if (missing.empty()) {
    found = {
        fmt::format("{}: nothing came for {} s, though all ranks answer", phase_, hub.deadline_s),
        true};
  } else {
    found.text = fmt::format("{}: {} did not arrive within {} s", phase_, rank_list(missing),
                             hub.deadline_s);
    found.outside = known && absence->outside;
    if (found.outside) found.text += "; " + absence->text;
  }
  hub.mesh->tell(found);
  end(found);
}

std::vector<int> MeshOperation::awaited() const {
  std::vector<int> ranks;
  for (const Other& other : others_)
    if (other.unsent + other.missing > 0) ranks.push_back(other.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace lockstep::comm
