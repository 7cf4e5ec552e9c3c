#include "lockstep/observe/trace/clock_offset.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::observe {
double steady_clock_us() { return now_s() * 1e6; }

ClockReading read_rounds(const std::vector<ClockRound>& rounds) {
  const ClockRound fastest =
      *std::min_element(rounds.begin(), rounds.end(), [](const ClockRound& a, const ClockRound& b) {
        return a.back_us - a.sent_us < b.back_us - b.sent_us;
      });
  const double middle_us = (fastest.sent_us + fastest.back_us) / 2;
  return {.at_us = middle_us,
          .ahead_us = middle_us - fastest.root_us,
          .uncertainty_us = (fastest.back_us - fastest.sent_us) / 2};
}

/// The barrier brings each rank's message, the broadcast the answer to all of them.
ClockReading read_clock(comm::Control& control, const TraceClock& clock, std::size_t rounds) {
  std::vector<ClockRound> made(rounds);
  for (ClockRound& round : made) {
    round.sent_us = clock();
    control.barrier("clocks of a trace");
    const std::string look = comm::write_record(clock());
    round.root_us = comm::read_record<double>(control.broadcast(look, "clocks of a trace"));
    round.back_us = clock();
  }
  if (control.rank() == 0) return {.at_us = made.back().root_us};
  return read_rounds(made);
}

ClockReading on_one_machine(const ClockReading& reading) {
  if (std::abs(reading.ahead_us) > reading.uncertainty_us) return reading;
  return {.at_us = reading.at_us};
}

double ClockAlignment::uncertainty_us() const {
  return std::max(first_.uncertainty_us, last_.uncertainty_us);
}

double ClockAlignment::ahead_us(double us) const {
  const double between_us = last_.at_us - first_.at_us;
  if (between_us <= 0) return first_.ahead_us;
  const double share = (us - first_.at_us) / between_us;
  return first_.ahead_us + share * (last_.ahead_us - first_.ahead_us);
}

}  // namespace lockstep::observe
