#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/waits/absence.hpp"
#include "ports/mpi/mail.hpp"

namespace lockstep::mpi {

/// A wait of this rank.
struct Wait {
  std::string_view phase;      ///< where
  std::vector<int> awaited{};  ///< for which ranks of the world; empty: for all
  double began_s = 0;
};

/// Finds out which ranks are missing when one has waited too long. It asks the heartbeats first,
/// which mostly know. If they do not (none is running, TCP is blocked, they find no rank late),
/// this rank asks all others. Those that also wait, for the same or for anything else, answer
/// during their wait; a rank that does not answer is busy with something else, hung or gone. All
/// ranks that wait get the finding, so they end at once and with the same message.
///
/// Where all ranks answer and still nothing comes, or the heartbeats say that one waits for a file
/// system, the finding is an OutsideFault.
///
/// Each rank has one, over all its communicators: a rank that waits in Control answers one that
/// waits for a reduction. A rank that waits for a group looks only at the ranks of this group, at
/// those that they wait for, and so on: others may be busy with something else.
/// **Thread safety:** none; only the main thread waits for MPI's messages.
class RollCall {
 public:
  explicit RollCall(MPI_Comm comm);
  void ask_first(comm::FindAbsence find_absence) { find_absence_ = std::move(find_absence); }
  /// Call it now and then during a wait: answers the ranks that ask. Throws Error with another
  /// rank's finding when that rank's deadline has passed.
  void listen(const Wait& wait);
  /// What all ranks that matter have said.
  struct Answers {
    std::map<int, std::string> phases;    ///< where each of them waits, this one included
    std::map<int, std::uint64_t> rounds;  ///< of those that answered
    std::vector<int> late;                ///< they came to the same wait after they were asked
    bool nearer = false;                  ///< nothing else: see comm::Absence
  };
  /// Call it after a wait of `deadline_s`: asks. Where a rank comes nearer, the wait begins again.
  /// Throws Error with the finding when some do not
  /// answer.
  Answers ask(const Wait& wait, double deadline_s);
  /// Call it when nothing has come for look_longer_s since all answered.
  [[noreturn]] void give_up(const Wait& wait, double deadline_s, const Answers& answers);
  /// Call it when something has come within this time.
  void warn_of_late(const Wait& wait, double deadline_s, const Answers& answers) const;

 private:
  struct Note;
  void send(const std::vector<int>& ranks, int tag, const Note& note);
  std::optional<Note> take(int tag);
  /// Throws Error when the heartbeats name absent ranks. True where one comes nearer.
  bool blame_absent(std::string_view phase, double deadline_s);
  [[noreturn]] void tell(const Answers& answers, const comm::WaitFinding& found);
  [[noreturn]] void end(const comm::WaitFinding& found);

  Mail mail_;
  comm::FindAbsence find_absence_;
  int rank_ = 0, world_ = 1;
  std::uint64_t round_ = 0;  ///< findings heard; notes of an earlier round are stale
};

/// The finding of a rank that waited in `phase` for `deadline_s`, directly or indirectly for the
/// ranks `awaited`, which ascend. `phases`: where each rank that answers waits, itself included.
std::string describe_missing(std::string_view phase, double deadline_s,
                             const std::vector<int>& awaited,
                             const std::map<int, std::string>& phases);

}  // namespace lockstep::mpi
