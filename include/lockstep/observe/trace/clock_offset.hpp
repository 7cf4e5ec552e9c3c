#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/comm/control.hpp"

namespace lockstep::observe {

/// Microseconds of a rank's clock; only differences mean something, and ranks' clocks differ.
using TraceClock = std::function<double()>;
/// The clock of now_s().
double steady_clock_us();

/// A message of this rank to rank 0 and its answer. Rank 0 looked at its clock in between.
struct ClockRound {
  double sent_us = 0, back_us = 0;  ///< on this rank's clock
  double root_us = 0;               ///< on rank 0's
};

/// How far this rank's clock was ahead of rank 0's, at some time on its own clock.
struct ClockReading {
  double at_us = 0, ahead_us = 0;
  double uncertainty_us = 0;  ///< it was ahead by at least that much less, at most that much more

  static void fields(auto& self, auto&& visit) {
    visit(self.at_us, self.ahead_us, self.uncertainty_us);
  }
};

/// By the fastest round, as NTP does (RFC 5905, section 8): rank 0's look is taken to be in its
/// middle, and was somewhere in it, however differently long the two ways are. Pure. REQUIRES: one
/// round at least.
ClockReading read_rounds(const std::vector<ClockRound>& rounds);

/// Makes that many rounds with rank 0, all ranks at once. Rank 0's reading is exact: 0. Collective.
ClockReading read_clock(comm::Control& control, const TraceClock& clock, std::size_t rounds = 64);

/// For a rank on rank 0's machine, where processes have one clock: then the reading is exact,
/// unless it contradicts that (a container may have another clock). Pure.
ClockReading on_one_machine(const ClockReading& reading);

/// Puts times of a rank on rank 0's clock, from two readings: between them, the clocks' speeds are
/// taken to differ by a constant.
class ClockAlignment {
 public:
  ClockAlignment(const ClockReading& first, const ClockReading& last)
      : first_(first), last_(last) {}
  double on_root(double us) const { return us - ahead_us(us); }
  /// Of a time between the readings.
  double uncertainty_us() const;

 private:
  double ahead_us(double us) const;
  ClockReading first_, last_;
};

}  // namespace lockstep::observe
