#pragma once

// The way from each rank of a node to its GPU and its network card, and what binding is worth
// there.

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::study {

/// Where a link's speed is not described: PCIe 3 x16, as NCCL counts it.
inline constexpr double usual_link_gb_per_s = 12;
/// Between two sockets, where a machine's profile does not say it: two UPI links of 10.4 GT/s.
inline constexpr double usual_cross_gb_per_s = 40;

/// One rank, that of one GPU, while all ranks of the node copy at once. 10^9 bytes a second.
struct RankPath {
  std::string gpu, pci_bus_id;
  std::size_t numa = 0;       ///< index of the GPU's NUMA node; those without one count as 0
  double bound_gb_per_s = 0;  ///< between the GPU and memory of its NUMA node
  /// The same where the memory is on any NUMA node, as the kernel chose, on average.
  double unbound_gb_per_s = 0;
  std::string card;           ///< the nearest network card that is up; empty without one
  std::size_t card_gpus = 0;  ///< GPUs that have this card as their nearest
  bool card_across = false;   ///< the way to it crosses the sockets
  double card_gb_per_s = 0;   ///< of this rank's share of the card
};

/// By GPU, in the order of PCI bus ids; empty without GPUs. `cross_gb_per_s`: between two sockets,
/// one way. Pure.
std::vector<RankPath> node_paths(const cluster::Machine& machine, double cross_gb_per_s);

}  // namespace lockstep::study
