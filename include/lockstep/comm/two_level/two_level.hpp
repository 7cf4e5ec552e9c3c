#pragma once

// All-reduces that cross the network between nodes only once for each byte and node.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::comm {

struct TwoLevelSpec {
  double deadline_s = 120;  ///< of silence, after which a wait for a rank of this node fails
  /// The most floats that are summed at once: more data is cut into parts. Of the shared memory,
  /// four times this for each rank, only what the data needs becomes pages.
  std::size_t most_floats = 8 << 20;
};

/// A communicator whose sums of f32 take two levels; null, with the reason, where the ranks of some
/// node cannot share memory.
struct TwoLevel {
  std::unique_ptr<Communicator> communicator;
  std::string obstacle;  ///< names the rank and the cause
};

/// Whether two levels can be better than one: several nodes, and several ranks on some of them.
bool has_two_levels(const Nodes& nodes);

/// Puts two levels above `flat`, which must outlive the result, on ranks that compute on the host.
/// `flat`, `control` and `nodes` number the same ranks.
///
/// Sums of f32: the ranks of a node add their data in shared memory, each one chunk of it; the
/// owners of the same chunk on all nodes add their chunks over `flat`; then each rank takes the
/// node's chunks from shared memory. So a node sends each byte to the network as often as one rank
/// of a flat all-reduce would. Every node has as many owners as the smallest node has ranks.
/// A node adds in the order of its ranks, so on up to two nodes the bits do not depend on how the
/// data is cut. All other verbs go to `flat` in the order of the calls.
///
/// The shared memory has no name and belongs to no file system: nothing is left of
/// it after a crash, and the size of /dev/shm does not matter. Collective.
TwoLevel make_two_level(Communicator& flat, Control& control, const Nodes& nodes,
                        const TwoLevelSpec& spec);

/// make_two_level() for a user's choice. Where the ranks of some node cannot share memory: throws
/// InputError with `asked`, the option that asks for two levels; logs that and returns null when
/// none does. Collective.
std::unique_ptr<Communicator> two_level_or_flat(Communicator& flat, Control& control,
                                                const Nodes& nodes, const TwoLevelSpec& spec,
                                                std::string_view asked);

}  // namespace lockstep::comm
