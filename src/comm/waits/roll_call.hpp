#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/fabric.hpp"

namespace lockstep::comm {

/// Finds out which ranks are missing: see ControlPlane.
class RollCall {
 public:
  explicit RollCall(Fabric& fabric) : fabric_(fabric) {}
  FindAbsence find_absence;  ///< may be empty
  class Deadline;

 private:
  struct Wait {
    std::string phase;
    std::vector<int> awaited;
    double began_s = 0;
  };
  /// What a rank says of its waits.
  struct Answer {
    std::uint64_t question = 0, round = 0;
    std::string phase;         ///< of the longest one
    std::vector<int> awaited;  ///< in all of them
    double waited_s = 0;       ///< in the longest one

    static void fields(auto& self, auto&& visit) {
      visit(self.question, self.round, self.phase, self.awaited, self.waited_s);
    }
  };
  /// A question to the ranks that a wait is for, those that they wait for, and so on.
  struct Asking {
    double since_s = now_s();
    Countdown left;            ///< of what may still come
    std::vector<int> asked{};  ///< ascending
    std::map<int, Answer> answers{};
  };
  /// A finding, for a rank in its round.
  struct Told {
    std::uint64_t round = 0;
    WaitFinding found{};

    static void fields(auto& self, auto&& visit) {
      visit(self.round, self.found.text, self.found.ending, self.found.gone);
    }
  };

  /// Answers the ranks that ask, and takes the answers to this one. Throws another rank's finding.
  void listen();
  void ask(std::uint64_t question, const std::vector<int>& ranks);
  /// Where the heartbeats name absent ranks, throws that. True where one comes nearer.
  bool blame_absent(const std::string& phase, double deadline_s);
  [[noreturn]] void end_without(const std::string& phase, const std::vector<int>& gone);
  /// Tells the finding to all ranks that a letter reaches but these, and throws it.
  [[noreturn]] void end(const std::vector<int>& absent, const std::map<int, Answer>& answers,
                        const WaitFinding& found);

  Fabric& fabric_;
  std::map<const void*, Wait> waits_;
  std::map<std::uint64_t, Asking> questions_;  ///< by number
  std::uint64_t last_question_ = 0;
  std::uint64_t round_ = 0;  ///< findings heard; what belongs to an earlier round is stale
};

/// A wait of this rank, which its deadline polls.
class RollCall::Deadline final : public WaitDeadline {
 public:
  Deadline(RollCall& roll_call, double deadline_s, std::string phase, Awaited awaited);
  ~Deadline() override;
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  void renew() override;
  void poll() override;
  /// Call it when something has arrived that does not renew the deadline.
  void moved();

 private:
  void look_for_gone(const std::vector<int>& awaited);
  void judge_answers(Asking& asking);

  RollCall& roll_call_;
  const double deadline_s_;
  const std::string phase_;
  const Awaited awaited_;
  double began_s_ = now_s(), look_s_;
  Countdown left_;
  std::optional<double> first_gone_s_;  ///< when a rank was first seen to be gone
  std::uint64_t question_ = 0;          ///< asked after the deadline; 0: none is open
};

/// The finding of a rank that waited in `phase` for `deadline_s`, directly or indirectly for the
/// ranks `awaited`, which ascend. `phases`: where each of them that answers waits.
std::string describe_missing(std::string_view phase, double deadline_s,
                             const std::vector<int>& awaited,
                             const std::map<int, std::string>& phases);

}  // namespace lockstep::comm
