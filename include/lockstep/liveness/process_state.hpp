#pragma once

#include <cstdint>
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

}  // namespace lockstep::liveness
