#include "ports/tcp/mesh/operation.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::comm {

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
      deadline_(*group_->hub, phase_) {
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
    deadline_.renew();
    group_->hub->network.activity.moved();
  } else if (deadline_.due()) {
    deadline_.look(awaited());
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

std::vector<int> MeshOperation::awaited() const {
  std::vector<int> ranks;
  for (const Other& other : others_)
    if (other.unsent + other.missing > 0) ranks.push_back(other.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace lockstep::comm
