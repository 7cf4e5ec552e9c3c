#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// Milliseconds since 1970.
std::uint64_t unix_ms();
/// The same for the past moment at which now_ms() was `then_ms`.
std::uint64_t unix_ms_of(double then_ms);

/// A place where the records of a run go: a file, the log, a server. A new kind of output is a new
/// sink; nothing else changes.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Takes the next record, in order. Throws InputError when it cannot be kept.
  virtual void write(const Record& record) = 0;
};

/// The stream of a run's records: each goes to all sinks, in the order in which these subscribed.
/// **Thread safety:** none; the main thread uses it.
class Records {
 public:
  /// The sink must outlive the stream, or its last write().
  void subscribe(Sink& sink) { sinks_.push_back(&sink); }
  /// Writes the present time into a record that has none. Every sink gets the record, even when
  /// another one throws; then the first exception continues.
  void write(Record record);

 private:
  std::vector<Sink*> sinks_;
};

}  // namespace lockstep::observe
