#pragma once

#include <algorithm>
#include <string_view>

#include "lockstep/base/clock.hpp"
#include "mpi/roll_call.hpp"

namespace lockstep::comm {

/// A deadline for something that is polled. The time between two polls counts for one second at
/// most: what a rank spends suspended or in its own work is not the others' delay.
class Patience {
 public:
  /// `phase` is what others are told that this rank waits in, and must stay alive.
  Patience(RollCall& roll_call, double deadline_s, std::string_view phase)
      : roll_call_(roll_call), deadline_s_(deadline_s), phase_(phase) {
    renew();
  }

  /// To be called when something has come.
  void renew() {
    left_s_ = deadline_s_;
    last_s_ = now_s();
    listen_s_ = last_s_ + listen_every_s;
  }

  /// To be called after a poll that found nothing. Throws Error, naming the ranks that are missing,
  /// when the deadline has passed here or on another rank that waits.
  void strain() {
    const double now = now_s();
    left_s_ -= std::min(now - last_s_, 1.0);
    last_s_ = now;
    if (now < listen_s_) return;
    listen_s_ = now + listen_every_s;
    roll_call_.listen(phase_);
    if (left_s_ < 0) roll_call_.ask(phase_, deadline_s_);
  }

 private:
  static constexpr double listen_every_s = 0.1;
  RollCall& roll_call_;
  double deadline_s_;
  std::string_view phase_;
  double left_s_ = 0, last_s_ = 0, listen_s_ = 0;
};

}  // namespace lockstep::comm
