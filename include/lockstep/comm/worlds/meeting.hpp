#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/control.hpp"

namespace lockstep::comm {

/// Implements Control's calls with one operation, the meeting: every rank brings a part, rank
/// 0 combines all parts, and every rank gets the result. A port implements meet().
class MeetingControl : public Control {
 public:
  using Control::Control;
  void barrier(std::string_view phase) final;
  std::vector<std::string> gather(const std::string& mine, std::string_view phase) final;
  std::string combine(const std::string& mine, std::string_view phase,
                      const Combine& combine) final;
  std::string broadcast(const std::string& from_root, std::string_view phase) final;
  std::vector<double> sum(const std::vector<double>& values, std::string_view phase) final;
  std::vector<double> max(const std::vector<double>& values, std::string_view phase) final;

 protected:
  using Parts = std::vector<std::string>;  ///< by rank
  /// Collective; `combine` runs on rank 0. Throws Error naming the phase and the ranks that did not
  /// come within the deadline, and when the ranks are in different phases.
  virtual std::string meet(const std::string& mine, std::string_view phase,
                           const Combine& combine) = 0;

 private:
  /// meet(), during which the other ranks see that this one waits.
  std::string attend(const std::string& mine, std::string_view phase, const Combine& combine);
  std::vector<double> fold(const std::vector<double>& values, std::string_view phase,
                           const std::function<double(double, double)>& operation);
};

}  // namespace lockstep::comm
