#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

struct NumaNode {
  int os_index = 0;
  CpuSet cpus;  ///< only nodes that have CPUs are listed: GPU memory may appear as a node
  std::size_t bytes = 0;
};

/// Where a PCI device is attached: its ancestors (machine, package, bridges, ...), outermost first.
/// The longer the part that two devices have in common, the nearer they are to each other.
using PciPath = std::vector<std::uint64_t>;

struct Gpu {
  std::string name, pci_bus_id;  ///< "0000:17:00.0"
  CpuSet near_cpus;              ///< allowed or not
  PciPath path;
  double link_gb_per_s = 0;    ///< its own link, 10^9 bytes a second; 0: not described
  double uplink_gb_per_s = 0;  ///< of the outermost link on its way to a processor
  std::uint64_t uplink = 0;    ///< names that link: equal for GPUs that share it
};

/// A network card.
struct NetworkCard {
  std::string name;  ///< "mlx5_0 (ib0)": the HCA and its interfaces; "ens5"; "PCI 15b3:1017"
  std::string pci_bus_id;
  bool hca = false;  ///< speaks InfiniBand's verbs (InfiniBand, RoCE, EFA, Omni-Path)
  bool up = true;    ///< false when the system reports no cable or no peer
  CpuSet near_cpus;
  PciPath path;
  double link_gb_per_s = 0;  ///< its own link, 10^9 bytes a second; 0: not described
};

/// The parts of a machine, as hwloc describes them.
struct Machine {
  std::string model;  ///< of the processor
  std::vector<NumaNode> numa;
  std::vector<CpuSet> cores;          ///< logical processors of each physical core, allowed or not
  std::vector<Gpu> gpus;              ///< by PCI bus id
  std::vector<NetworkCard> networks;  ///< by PCI bus id
  CpuSet allowed;                     ///< what the scheduler or cgroup lets this process use
  bool foreign = false;               ///< read from a file: its plans can be shown, but not bound
};

/// The machine that this process runs on, or the one that `xml_path` describes (lstopo --of xml).
/// Starts no GPU driver. Throws InputError when the file is missing, is not a topology or has no
/// processor that may be used, and when HWLOC_* variables make hwloc describe another machine.
Machine look_at_machine(const std::optional<std::string>& xml_path = std::nullopt);

/// The machine as it appears in a cgroup without these CPUs. Throws InputError when the machine
/// does not have them, and when no CPU is left. Pure.
Machine without_cpus(Machine machine, const CpuSet& hidden);

}  // namespace lockstep::cluster
