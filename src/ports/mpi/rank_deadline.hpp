#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/countdown.hpp"
#include "ports/mpi/roll_call.hpp"

namespace lockstep::comm {

/// The deadline of a wait for other ranks. Answers their questions during the wait, and asks them
/// when it is over. When all answer, it looks two seconds longer: a late rank may have come just
/// then.
class RankDeadline {
 public:
  /// `phase` tells the others where this rank waits, and `awaited` for which ranks of MPI's world:
  /// for all, when it is empty. Both must stay alive.
  RankDeadline(RollCall& roll_call, double deadline_s, std::string_view phase,
               std::span<const int> awaited = {})
      : roll_call_(roll_call),
        deadline_s_(deadline_s),
        wait_{phase, awaited, now_s()},
        countdown_(deadline_s) {}

  /// Call it when something has arrived, and the wait begins again.
  void renew() {
    moved();
    countdown_ = Countdown(deadline_s_);
    wait_.began_s = now_s();
    listen_s_ = wait_.began_s + listen_every_s;
  }

  /// Call it when something has arrived that does not renew the deadline.
  void moved() {
    if (!all_answer_) return;
    roll_call_.warn_of_late(wait_, deadline_s_, *all_answer_);
    all_answer_.reset();
    countdown_ = Countdown(look_longer_s);
  }

  /// Call it after a poll that found nothing. Throws Error naming the missing ranks when the
  /// deadline has passed here or on another rank that waits.
  void poll() {
    const bool over = countdown_.over();
    const double now = now_s();
    if (now < listen_s_) return;
    listen_s_ = now + listen_every_s;
    roll_call_.listen(wait_);
    if (!over) return;
    if (all_answer_) roll_call_.give_up(wait_, deadline_s_, *all_answer_);
    all_answer_ = roll_call_.ask(wait_, deadline_s_);
    countdown_ = Countdown(look_longer_s);
  }

 private:
  static constexpr double listen_every_s = 0.1;
  RollCall& roll_call_;
  double deadline_s_;
  Wait wait_;
  Countdown countdown_;
  std::optional<RollCall::Answers> all_answer_;  ///< until something arrives
  double listen_s_ = now_s() + listen_every_s;
};

}  // namespace lockstep::comm
