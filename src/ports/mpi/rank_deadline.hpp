#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "ports/mpi/roll_call.hpp"

namespace lockstep::mpi {

/// Answers other ranks' questions during the wait, and asks them when the deadline has passed. When
/// all answer, it looks two seconds longer: a late rank may have come just then.
class RankDeadline final : public comm::WaitDeadline {
 public:
  /// `phase` tells the others where this rank waits. Without `awaited` it waits for all.
  RankDeadline(RollCall& roll_call, double deadline_s, std::string phase,
               comm::Awaited awaited = {})
      : roll_call_(roll_call),
        deadline_s_(deadline_s),
        phase_(std::move(phase)),
        awaited_(std::move(awaited)),
        countdown_(deadline_s) {}

  void renew() override {
    moved();
    countdown_ = Countdown(deadline_s_);
    began_s_ = now_s();
    listen_s_ = began_s_ + listen_every_s;
  }

  /// Call it when something has arrived that does not renew the deadline.
  void moved() {
    if (!all_answer_) return;
    roll_call_.warn_of_late({phase_, {}, began_s_}, deadline_s_, *all_answer_);
    all_answer_.reset();
    countdown_ = Countdown(comm::look_longer_s);
  }

  void poll() override {
    const bool over = countdown_.over();
    const double now = now_s();
    if (now < listen_s_) return;
    listen_s_ = now + listen_every_s;
    const Wait wait{phase_, awaited_ ? awaited_() : std::vector<int>(), began_s_};
    roll_call_.listen(wait);
    if (!over) return;
    if (all_answer_) roll_call_.give_up(wait, deadline_s_, *all_answer_);
    RollCall::Answers answers = roll_call_.ask(wait, deadline_s_);
    countdown_ = Countdown(answers.nearer ? deadline_s_ : comm::look_longer_s);
    if (!answers.nearer) all_answer_ = std::move(answers);
  }

 private:
  static constexpr double listen_every_s = 0.1;
  RollCall& roll_call_;
  const double deadline_s_;
  const std::string phase_;
  const comm::Awaited awaited_;
  double began_s_ = now_s();
  Countdown countdown_;
  std::optional<RollCall::Answers> all_answer_;  ///< until something arrives
  double listen_s_ = began_s_ + listen_every_s;
};

}  // namespace lockstep::mpi
