#include "lockstep/observe/sink.hpp"

#include <chrono>
#include <exception>
#include <limits>

#include "lockstep/base/clock.hpp"

namespace lockstep::observe {

namespace {

double system_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

}  // namespace

std::uint64_t unix_ms() { return static_cast<std::uint64_t>(system_ms()); }

/// Between the readings of two clocks the thread may have to wait for a core, so the closest of
/// some readings counts.
std::uint64_t unix_ms_of(double then_ms) {
  constexpr double close_ms = 0.01;
  double between_ms = std::numeric_limits<double>::infinity(), offset_ms = 0;
  for (int tries = 0; tries < 10 && between_ms > close_ms; ++tries) {
    const double before_ms = now_ms(), system = system_ms(), after_ms = now_ms();
    if (after_ms - before_ms >= between_ms) continue;
    between_ms = after_ms - before_ms;
    offset_ms = system - before_ms;
  }
  return static_cast<std::uint64_t>(then_ms + offset_ms);
}

void Records::write(Record record) {
  std::visit([](auto& one) { one.time_ms = one.time_ms == 0 ? unix_ms() : one.time_ms; }, record);
  std::exception_ptr first;
  for (Sink* sink : sinks_) {
    try {
      sink->write(record);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::observe
