#include "lockstep/observe/sink.hpp"

#include <chrono>
#include <exception>

namespace lockstep::observe {

std::uint64_t unix_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
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
