#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/activity.hpp"

namespace lockstep::comm {

/// Small messages between ranks: agree, gather, exchange. Every call is collective, made by all
/// ranks in the same order. It throws Error naming the phase and the ranks that did not arrive
/// within the deadline. The bytes of a call grow with the number of ranks; those of gather(), which
/// gives all to all, with its square (a text that several ranks share is sent once): only for what
/// every rank needs, and not for calls that a run makes again and again.
///
/// All calls are one operation, the meeting: every rank brings a part, rank 0 combines all parts,
/// and every rank gets the result.
class Control {
 public:
  explicit Control(const ActivityTracker& of_rank = {}) : activity(of_rank) {}
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  void barrier(std::string_view phase);
  std::vector<std::string> gather(const std::string& mine,
                                  std::string_view phase);  ///< all ranks get all
  using Parts = std::vector<std::string>;                   ///< by rank
  using Combine = std::function<std::string(const Parts&)>;
  /// What rank 0 makes of all ranks' texts, on every rank. `combine` runs on rank 0; where all
  /// ranks know all texts, it may run on each.
  std::string combine(const std::string& mine, std::string_view phase, const Combine& combine);
  std::string broadcast(const std::string& from_root, std::string_view phase);  ///< rank 0's
  std::vector<double> sum(const std::vector<double>& values, std::string_view phase);
  std::vector<double> max(const std::vector<double>& values, std::string_view phase);
  /// Rank 0 gets the texts of all ranks, the others nothing.
  std::vector<std::string> gather_at_root(const std::string& mine, std::string_view phase);
  bool any(bool mine, std::string_view phase) { return max({mine ? 1.0 : 0.0}, phase)[0] > 0; }

  const ActivityTracker activity;  ///< calls that wait for other ranks are marked there

 private:
  /// The meeting.
  virtual std::string meet(const std::string& mine, std::string_view phase,
                           const Combine& combine) = 0;
  std::vector<double> fold(const std::vector<double>& values, std::string_view phase,
                           const std::function<double(double, double)>& operation);
};

/// A world of one rank, which never waits.
class LoneControl final : public Control {
 public:
  using Control::Control;
  int rank() const override { return 0; }
  int world() const override { return 1; }

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    return combine({mine});
  }
};

}  // namespace lockstep::comm
