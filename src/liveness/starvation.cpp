#include "lockstep/liveness/starvation.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "lockstep/base/files/io.hpp"

namespace lockstep::liveness {
namespace {

// A turn sleeps for less, and take() was called later than that before it.
constexpr double least_s = 1;

}  // namespace

StarvationWatch::StarvationWatch(std::optional<double> (*waited)())
    : waited_(waited), waited_s_(waited()) {}

bool StarvationWatch::turn(double since_last_s) {
  if (since_last_s < least_s) return false;
  const std::optional<double> before = std::exchange(waited_s_, waited_());
  const bool starved = before && waited_s_ && *waited_s_ - *before > since_last_s / 2;
  if (starved) longest_s_ = std::max(longest_s_, since_last_s);
  return starved;
}

double StarvationWatch::take() {
  waited_s_ = waited_();
  return std::exchange(longest_s_, 0);
}

std::optional<double> StarvationWatch::waited_for_a_core() {
  std::istringstream numbers(first_line("/proc/thread-self/schedstat"));
  double ran_ns = 0, waited_ns = 0;
  if (!(numbers >> ran_ns >> waited_ns)) return std::nullopt;
  return waited_ns * 1e-9;
}

}  // namespace lockstep::liveness
