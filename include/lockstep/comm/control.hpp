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
class Control {
 public:
  explicit Control(const ActivityTracker& of_rank = {}) : activity(of_rank) {}
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual void barrier(std::string_view phase) = 0;
  virtual std::vector<std::string> gather(const std::string& mine,
                                          std::string_view phase) = 0;  ///< all ranks get all
  using Combine = std::function<std::string(const std::vector<std::string>& by_rank)>;
  /// What rank 0 makes of all ranks' texts, on every rank. `combine` runs on rank 0; where all
  /// ranks know all texts, it may run on each.
  virtual std::string combine(const std::string& mine, std::string_view phase,
                              const Combine& combine) {
    return combine(gather(mine, phase));
  }
  virtual std::string broadcast(const std::string& from_root,
                                std::string_view phase) = 0;  ///< rank 0's
  virtual std::vector<double> sum(const std::vector<double>& values, std::string_view phase) = 0;
  virtual std::vector<double> max(const std::vector<double>& values, std::string_view phase) = 0;

  /// Rank 0 gets the texts of all ranks, the others nothing.
  std::vector<std::string> gather_at_root(const std::string& mine, std::string_view phase) {
    std::vector<std::string> all;
    combine(mine, phase, [&all](const std::vector<std::string>& by_rank) {
      all = by_rank;
      return std::string();
    });
    if (rank() != 0) all.clear();
    return all;
  }
  bool any(bool mine, std::string_view phase) { return max({mine ? 1.0 : 0.0}, phase)[0] > 0; }

  const ActivityTracker activity;  ///< calls that wait for other ranks are marked there
};

/// A world of one rank, which never waits.
class LoneControl final : public Control {
 public:
  using Control::Control;
  int rank() const override { return 0; }
  int world() const override { return 1; }
  void barrier(std::string_view) override {}
  std::vector<std::string> gather(const std::string& mine, std::string_view) override {
    return {mine};
  }
  std::string broadcast(const std::string& mine, std::string_view) override { return mine; }
  std::vector<double> sum(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
  std::vector<double> max(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
};

}  // namespace lockstep::comm
