#pragma once

#include <string_view>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/countdown.hpp"
#include "ports/mpi/roll_call.hpp"

namespace lockstep::comm {

/// A countdown for what other ranks owe: these are heard meanwhile, and called when it is over.
class RankDeadline {
 public:
  /// `phase` is what others are told that this rank waits in, and must stay alive.
  RankDeadline(RollCall& roll_call, double deadline_s, std::string_view phase)
      : roll_call_(roll_call), deadline_s_(deadline_s), phase_(phase), countdown_(deadline_s) {}

  /// To be called when something has come.
  void renew() {
    countdown_ = Countdown(deadline_s_);
    listen_s_ = now_s() + listen_every_s;
  }

  /// To be called after a poll that found nothing. Throws Error, naming the ranks that are missing,
  /// when the deadline has passed here or on another rank that waits.
  void poll() {
    const bool over = countdown_.over();
    const double now = now_s();
    if (now < listen_s_) return;
    listen_s_ = now + listen_every_s;
    roll_call_.listen(phase_);
    if (over) roll_call_.ask(phase_, deadline_s_);
  }

 private:
  static constexpr double listen_every_s = 0.1;
  RollCall& roll_call_;
  double deadline_s_;
  std::string_view phase_;
  Countdown countdown_;
  double listen_s_ = now_s() + listen_every_s;
};

}  // namespace lockstep::comm
