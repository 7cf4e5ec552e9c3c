#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/absence.hpp"
#include "ports/mpi/mail.hpp"

namespace lockstep::comm {

/// Finds out which ranks are missing when one has waited too long. It asks the heartbeats first,
/// which mostly know. If they do not (none is running, TCP is blocked, they find no rank late),
/// this rank asks all others. Those that also wait, for the same or for anything else, answer
/// during their wait; a rank that does not answer is busy with something else, hung or gone. All
/// ranks that wait get the finding, so they end at once and with the same message.
///
/// Each rank has one, over all its communicators: a rank that waits in Control answers one that
/// waits for a reduction.
/// **Thread safety:** none; only the main thread waits for MPI's messages.
class RollCall {
 public:
  explicit RollCall(MPI_Comm comm);
  void ask_first(FindAbsence find_absence) { find_absence_ = std::move(find_absence); }
  /// Call it now and then while this rank waits in `phase`: answers the ranks that ask. Throws
  /// Error with another rank's finding when that rank's deadline has passed.
  void listen(std::string_view phase);
  /// Call it when this rank has waited in `phase` for `deadline_s`: asks, and throws Error with the
  /// finding.
  [[noreturn]] void ask(std::string_view phase, double deadline_s);

 private:
  struct Note;
  void send(const std::vector<int>& ranks, int tag, const Note& note);
  std::optional<Note> take(int tag);
  /// Throws Error when the heartbeats name absent ranks; else returns.
  void blame_absent(std::string_view phase, double deadline_s);
  [[noreturn]] void end(const std::string& finding);

  Mail mail_;
  FindAbsence find_absence_;
  int rank_ = 0, world_ = 1;
  std::uint64_t round_ = 0;  ///< findings heard; notes of an earlier round are stale
};

/// The finding of a rank that waited in `phase` for `deadline_s`. `phases`: where each rank that
/// answers waits, itself included.
std::string describe_missing(std::string_view phase, double deadline_s, int world,
                             const std::map<int, std::string>& phases);

}  // namespace lockstep::comm
