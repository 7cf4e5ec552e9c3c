#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/countdown.hpp"
#include "ports/tcp/mesh/group.hpp"

namespace lockstep::comm {

/// The deadline of a wait for other ranks. During the wait this rank tells those that ask for which
/// ranks it waits; when it is over, this rank asks. When all answer, it looks two seconds longer: a
/// late rank may have come just then.
class MeshDeadline {
 public:
  /// `phase` is what errors call the wait. Both must stay alive.
  MeshDeadline(MeshHub& hub, std::string_view phase);
  ~MeshDeadline();
  MeshDeadline(const MeshDeadline&) = delete;
  MeshDeadline& operator=(const MeshDeadline&) = delete;

  /// Call it when something has arrived.
  void renew();
  /// Whether it is time for look(), some times a second.
  bool due() const;
  /// Call it when nothing has arrived. `awaited`: ranks of the world, ascending, without this one.
  /// Throws MissingRanks when one of them has gone and no heartbeat tells more, and Error naming
  /// the missing ranks when the deadline has passed here or on another rank that waits.
  void look(const std::vector<int>& awaited);

 private:
  void ask(const std::vector<int>& awaited);
  [[noreturn]] void give_up();
  [[noreturn]] void end_all(const MeshFinding& found);

  MeshHub& hub_;
  std::string_view phase_;
  double began_s_;  ///< when this rank began to wait
  Countdown left_;
  std::optional<std::vector<int>> free_;  ///< all answered; these did not wait for others
  bool told_ = false;                     ///< that this rank waits
  double look_s_;                         ///< when to look for lost ranks again
  std::optional<double> first_gone_s_;    ///< when a rank was first seen to be gone
};

}  // namespace lockstep::comm
