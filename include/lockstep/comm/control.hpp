#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Small messages between ranks: agree, gather, exchange. Every call is collective, made by all
/// ranks in the same order. It throws Error naming the phase and the ranks that did not arrive
/// within the deadline.
class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual void barrier(std::string_view phase) = 0;
  virtual std::vector<std::string> gather(const std::string& mine,
                                          std::string_view phase) = 0;  ///< all ranks get all
  /// Rank 0 gets all, the others nothing: the traffic grows with the ranks, not with their square.
  virtual std::vector<std::string> gather_at_root(const std::string& mine, std::string_view phase) {
    std::vector<std::string> all = gather(mine, phase);
    if (rank() != 0) all.clear();
    return all;
  }
  virtual std::string broadcast(const std::string& from_root,
                                std::string_view phase) = 0;  ///< rank 0's
  virtual std::vector<double> sum(const std::vector<double>& values, std::string_view phase) = 0;
  virtual std::vector<double> max(const std::vector<double>& values, std::string_view phase) = 0;

  bool any(bool mine, std::string_view phase) { return max({mine ? 1.0 : 0.0}, phase)[0] > 0; }
};

}  // namespace lockstep::comm
