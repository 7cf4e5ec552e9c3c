#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/absence.hpp"
#include "ports/mpi/mail.hpp"

namespace lockstep::comm {

/// Finds out which ranks are missing when one has waited too long. The heartbeats are asked first:
/// mostly they know. Where they do not (none is running, TCP is blocked, no rank is late by them),
/// this rank asks all others. Those that wait too, for the same or for anything else, answer from
/// within their wait; a rank that does not answer is busy with something else, hung or gone. The
/// finding is told to all that wait, so that they end at once and with the same words.
///
/// One for each rank, over all its communicators: a rank that waits in the control plane tells so
/// to one that waits for a reduction.
/// **Thread safety:** none; the main thread alone waits for messages of MPI.
class RollCall {
 public:
  explicit RollCall(MPI_Comm comm);
  void ask_first(FindAbsence find_absence) { find_absence_ = std::move(find_absence); }
  /// To be called now and then while this rank waits in `phase`: answers those who ask. Throws
  /// Error when another rank's patience is over, with what that rank found.
  void listen(std::string_view phase);
  /// This rank has waited in `phase` for `deadline_s`: asks, and throws Error with what it found.
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
  std::uint64_t round_ = 0;  ///< findings heard; what belongs to an earlier one is stale
};

/// What a rank says that waited in `phase` for `deadline_s`. `phases`: of each rank that is there,
/// itself included, what it waits in.
std::string describe_missing(std::string_view phase, double deadline_s, int world,
                             const std::map<int, std::string>& phases);

}  // namespace lockstep::comm
