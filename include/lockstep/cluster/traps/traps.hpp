#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/nodes/node_look.hpp"

namespace lockstep::cluster {

/// A setting or a lack by which a launch fails, is slow, or computes otherwise than it says, as
/// users of clusters have met it.
struct TrapFinding {
  std::string trap;    ///< its short name
  std::string text;    ///< what is the case, and what comes of it
  std::string line;    ///< of a shell, before the launch: after it the trap is gone
  std::string report;  ///< a public thread about it: OWNER/PROJECT#NUMBER
  bool certain = false;

  static void fields(auto& self, auto&& visit) {
    visit(self.trap, self.text, self.line, self.report, self.certain);
  }
};
/// "TEXT: LINE [TRAP, REPORT]"
std::string to_string(const TrapFinding& finding);

enum class TrapScope {
  all,       ///< also what may be right on some machines
  certain,   ///< what is wrong wherever it is found
  settings,  ///< what the environment alone shows: the files are another machine's
};

/// All traps that the facts show, in the order of the table. Pure, but for files whose names
/// variables have (below `look.root`).
std::vector<TrapFinding> find_traps(const NodeLook& look, TrapScope scope);

/// The names of all traps.
std::vector<std::string> trap_names();

/// The network that NCCL says in its log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET) that it
/// takes: "IB", "Socket", "AWS Libfabric"; empty where it does not say.
std::string nccl_network_in(std::string_view log);

/// NCCL took sockets although the node has a better network.
std::optional<TrapFinding> judge_nccl_network(const NodeLook& look, std::string_view network);

}  // namespace lockstep::cluster
