#pragma once

#include <optional>

namespace lockstep::liveness {

/// Finds out for how long a thread that should run several times a second got no core: its node is
/// overloaded. A process that was stopped did not wait for a core.
/// **Thread safety:** none; one thread makes it and uses it.
class StarvationWatch {
 public:
  /// Seconds in which the calling thread was ready and had no core, since it began. Nothing where
  /// the kernel does not say; then nothing is found.
  static std::optional<double> waited_for_a_core();

  /// A test gives its own source of that time.
  explicit StarvationWatch(std::optional<double> (*waited)() = &waited_for_a_core);

  /// At the begin of each turn, with the time since the begin of the last one. True when for most
  /// of it, and for a second at least, the thread waited for a core.
  bool turn(double since_last_s);
  /// The longest such time since the last call; call it several times a second.
  double take();

 private:
  std::optional<double> (*waited_)();
  std::optional<double> waited_s_;  ///< at the last take()
  double longest_s_ = 0;
};

}  // namespace lockstep::liveness
