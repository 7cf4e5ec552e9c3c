#pragma once

#include <span>
#include <string_view>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/countdown.hpp"
#include "ports/mpi/roll_call.hpp"

namespace lockstep::comm {

/// The deadline of a wait for other ranks. Answers their questions during the wait, and asks them
/// when it is over.
class RankDeadline {
 public:
  /// `phase` tells the others where this rank waits, and `awaited` for which ranks of MPI's world:
  /// for all, when it is empty. Both must stay alive.
  RankDeadline(RollCall& roll_call, double deadline_s, std::string_view phase,
               std::span<const int> awaited = {})
      : roll_call_(roll_call),
        deadline_s_(deadline_s),
        wait_{phase, awaited},
        countdown_(deadline_s) {}

  /// Call it when something has arrived.
  void renew() {
    countdown_ = Countdown(deadline_s_);
    listen_s_ = now_s() + listen_every_s;
  }

  /// Call it after a poll that found nothing. Throws Error naming the missing ranks when the
  /// deadline has passed here or on another rank that waits.
  void poll() {
    const bool over = countdown_.over();
    const double now = now_s();
    if (now < listen_s_) return;
    listen_s_ = now + listen_every_s;
    roll_call_.listen(wait_);
    if (over) roll_call_.ask(wait_, deadline_s_);
  }

 private:
  static constexpr double listen_every_s = 0.1;
  RollCall& roll_call_;
  double deadline_s_;
  Wait wait_;
  Countdown countdown_;
  double listen_s_ = now_s() + listen_every_s;
};

}  // namespace lockstep::comm
