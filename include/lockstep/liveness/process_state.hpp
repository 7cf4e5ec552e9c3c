#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/error.hpp"

namespace lockstep::liveness {

/// A rank's process, as the other processes of its node see it.
struct ProcessId {
  std::int32_t number = 0;
  std::uint64_t space = 0;  ///< in which the number holds: containers of a node may differ

  static void fields(auto& self, auto&& visit) { visit(self.number, self.space); }
};
ProcessId own_process();

/// What keeps a process from answering.
struct Trouble {
  std::string text;  ///< "it is stopped", "its process has ended"; empty: nothing that is known
  Ending ending =
      Ending::unknown;  ///< of a run that ends with it: lost_rank: the process has ended

  static void fields(auto& self, auto&& visit) { visit(self.text, self.ending); }
};
/// The same of a process of this node, as its kernel says.
Trouble trouble_of(const ProcessId& process);

/// Whether trouble_of() says that the process has ended.
bool has_ended(const ProcessId& process);

/// Processes of this machine that its kernel has ended for lack of memory since this one began; 0
/// where it does not count them.
std::uint64_t memory_kills();

/// The same as trouble_of() from the text of the process's /proc/N/status.
Trouble trouble_in(const std::string& status);

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
