#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::comm {

/// What does not answer is the network or a file system. No rank's program has failed, and a new
/// start may help.
class OutsideFault : public Error {
 public:
  using Error::Error;
};

/// Ranks are missing or have gone; what() names them.
class MissingRanks : public Error {
 public:
  explicit MissingRanks(const std::string& what, bool told_by_rank_0 = false)
      : Error(what, Ending::lost_rank), told(told_by_rank_0) {}
  const bool told;  ///< rank 0 has reported it; the others need not
};

/// What a rank has found out of a wait that did not end, and tells the others.
struct WaitFinding {
  std::string text;  ///< empty: nothing was found
  Ending ending = Ending::stuck;
  bool gone = false;  ///< a rank whose connection has ended
  /// It is the network's or a file system's fault.
  bool outside() const { return ending == Ending::network || ending == Ending::file_system; }
};
/// The ranks that keep others waiting.
struct Absence {
  std::vector<int> ranks;         ///< ascending; empty when every rank is present and on time
  std::string text;               ///< which ranks, in which step and phase, and for how long
  Ending ending = Ending::stuck;  ///< of a run that ends with it
  /// No rank is late: one in an earlier step, which some exchanges allow, makes steps. A
  /// wait for it begins again.
  bool nearer = false;

  static void fields(auto& self, auto&& visit) {
    visit(self.ranks, self.text, self.ending, self.nearer);
  }
  /// `what`, and of a fault outside what is known beyond it.
  WaitFinding finding(const std::string& what) const;
};

/// What an operation is called in errors, "bucket 3 of group rows". `group` is empty for the world.
std::string phase_in(std::string_view group, std::string_view operation);

/// Finds the ranks that keep this one waiting, after it has waited for `waited_s`. Does not ask
/// those ranks. Nothing when they are not known. Takes a second at most.
/// **Thread safety:** any thread may call it.
using FindAbsence = std::function<std::optional<Absence>(double waited_s)>;

/// Tells which ranks a wait is for at this moment: numbers in the world, ascending, without this
/// one.
using Awaited = std::function<std::vector<int>()>;

/// The deadline of a wait for other ranks. While it is polled, other ranks that look for missing
/// ones learn that this rank waits, too.
class WaitDeadline {
 public:
  virtual ~WaitDeadline() = default;
  /// Call it when something has arrived.
  virtual void renew() = 0;
  /// Call it after a poll that found nothing. Throws Error naming the missing ranks when the
  /// deadline has passed here or on another rank that waits.
  virtual void poll() = 0;
};

}  // namespace lockstep::comm
