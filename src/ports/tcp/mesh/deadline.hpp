#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/countdown.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/comm/waits/wait_deadline.hpp"
#include "ports/tcp/mesh/mesh.hpp"

namespace lockstep::tcp {

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

}  // namespace lockstep::tcp
