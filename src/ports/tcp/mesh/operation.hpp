#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/elements.hpp"
#include "lockstep/device/host_stream.hpp"
#include "ports/tcp/mesh/deadline.hpp"
#include "ports/tcp/mesh/group.hpp"

namespace lockstep::comm {

/// One operation of a group, in flight. It begins when the stream first advances it, so a rank is
/// ahead of the others by a few operations at most, and they keep few messages that come too early.
class MeshOperation : public device::Pending {
 public:
  ~MeshOperation() override;
  bool advance() final;  ///< throws Error when nothing moved within the deadline

 protected:
  /// Another rank of the group, and how many messages to it and from it are not finished.
  struct Other {
    int member = 0;  ///< its rank in the group
    int rank = 0;    ///< in the world
    std::size_t unsent = 0, missing = 0;
  };

  /// `others`: the ranks of the group that take part. `phase` is what errors call the operation.
  MeshOperation(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                const std::vector<int>& others);
  virtual void begin() = 0;
  virtual void work() {}  ///< what the messages that have arrived allow

  void send(Other& other, std::size_t part, Elements data);
  void expect(Other& other, std::size_t part, Elements data);
  std::optional<Arrival> take(Other& other, std::size_t part, Elements like);
  Staging& staging() const { return group_->hub->staging; }
  int world() const { return group_->world(); }
  int rank() const { return group_->rank; }

  std::vector<Other> others_;  ///< does not grow: the links know where the counters are

 private:
  std::size_t left() const;
  std::vector<int> awaited() const;  ///< ranks of the world, ascending

  const std::shared_ptr<const MeshGroup> group_;
  const MeshTag tag_;
  const std::string phase_;
  MeshDeadline deadline_;
  bool begun_ = false;
  std::size_t left_ = 0;
};

/// The others of a group, starting with the next rank.
std::vector<int> others_of(const MeshGroup& group);

}  // namespace lockstep::comm
