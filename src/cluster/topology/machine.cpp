#include "lockstep/cluster/topology/machine.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/bind.hpp"

namespace lockstep::cluster {
namespace {

using Topology = Owned<hwloc_topology_t, hwloc_topology_destroy>;

CpuSet to_cpus(hwloc_const_cpuset_t set) {
  CpuSet cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    cpus.push_back(cpu);
  return cpus;
}

const char* info_of(hwloc_obj_t object, const char* name) {
  const char* text = object ? hwloc_obj_get_info_by_name(object, name) : nullptr;
  return text && *text ? text : nullptr;
}

/// The HWLOC_* variables that decide which machine hwloc describes, as "NAME=value ...".
std::string misleading_variables() {
  std::string text;
  for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_CPUID_PATH",
                           "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM"})
    if (const char* value = std::getenv(name))
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text.empty() ? "HWLOC_* variables" : text;
}

/// The GPU components would initialise drivers and start threads before this process is bound.
/// libpciaccess (pci) leaks memory in each call; Linux's own files say where a PCI device is.
void forbid_drivers(hwloc_topology_t topology) {
  for (const char* component : {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl", "pci"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
}

Topology load(const std::optional<std::string>& xml_path) {
  hwloc_topology_t raw = nullptr;
  check(hwloc_topology_init(&raw) == 0, "hwloc_topology_init");
  Topology topology(raw);
  // Disallowed processors are kept, so that "the GPU's cores are not allowed" can name them.
  unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  forbid_drivers(raw);
  if (xml_path) {
    std::error_code error;
    require(std::filesystem::is_regular_file(*xml_path, error),
            fmt::format("{}: no such file: write one with lstopo --of xml FILE.xml", *xml_path));
    require(hwloc_topology_set_xml(raw, xml_path->c_str()) == 0,
            fmt::format("{}: not an XML topology that hwloc can read: write one with lstopo --of "
                        "xml FILE.xml",
                        *xml_path));
  } else {
    flags |= HWLOC_TOPOLOGY_FLAG_THISSYSTEM_ALLOWED_RESOURCES;
  }
  hwloc_topology_set_flags(raw, flags);
  const bool loaded = hwloc_topology_load(raw) == 0;
  if (xml_path)
    require(loaded, fmt::format("{}: hwloc cannot load this topology (damaged or written by "
                                "another version?): write it again with lstopo --of xml",
                                *xml_path));
  check(loaded, fmt::format("hwloc cannot describe this machine: {}", std::strerror(errno)));
  return topology;
}

/// The processors that the kernel has; `otherwise` when it does not list them.
CpuSet present_cpus(const CpuSet& otherwise) {
  const std::string text = first_line("/sys/devices/system/cpu/present");
  return text.empty() ? otherwise : parse_cpus(text);
}

/// The environment may describe another machine to hwloc, and may claim that it is this one. So all
/// described processors must exist here, and include those that this thread runs on.
void require_this_system(hwloc_topology_t topology) {
  const CpuSet described = to_cpus(hwloc_topology_get_topology_cpuset(topology));
  const CpuSet here = present_cpus(described);
  require(
      hwloc_topology_is_thissystem(topology) && contains(here, described) &&
          contains(described, current_cpus()),
      fmt::format("hwloc describes another machine (CPUs {}) than this one (CPUs {}): unset {}; "
                  "to look at another machine use lockstep topo --hwloc FILE.xml",
                  to_string(described), to_string(here), misleading_variables()));
}

/// Arm's processors have numbers for names: "0x41 0xd4f", the maker's and the part's, as Linux says
/// them in /proc/cpuinfo. Those of clusters have their own names here (Arm's technical reference
/// manuals, register MIDR_EL1).
std::string arm_model(std::string_view maker, std::string_view part) {
  struct Known {
    std::string_view maker, part, name;
  };
  constexpr Known all[] = {{"0x41", "0xd0c", "Neoverse N1"}, {"0x41", "0xd40", "Neoverse V1"},
                           {"0x41", "0xd49", "Neoverse N2"}, {"0x41", "0xd4f", "Neoverse V2"},
                           {"0x41", "0xd84", "Neoverse V3"}, {"0x46", "0x001", "A64FX"}};
  for (const Known& known : all)
    if (known.maker == maker && known.part == part) return std::string(known.name);
  return fmt::format("Arm processor of maker {}, part {}", maker, part);
}

/// Processors pad their names with blanks.
std::string model_of(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* maker = info_of(package, "CPUImplementer");
  const char* part = info_of(package, "CPUPart");
  for (hwloc_obj_t object : {package, hwloc_get_root_obj(topology)})
    for (const char* name : {"CPUModel", "CPUType", "PlatformName"})
      if (const char* model = info_of(object, name)) return std::string(trimmed(model));
  if (maker && part) return arm_model(maker, part);
  return "unknown processor";
}

/// hwloc gives a node without CPUs (a GPU's memory, HBM) the CPUs of the part that it is attached
/// to. Firmware and kernel number the nodes with the CPUs' own memory first, and no two of these
/// have a CPU in common. So a node that shares a CPU with an earlier node has no CPUs itself.
std::vector<NumaNode> numa_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> all;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)))
    if (!object->subtype || std::strcmp(object->subtype, "GPUMemory") != 0)
      all.push_back({static_cast<int>(object->os_index), to_cpus(object->cpuset),
                     static_cast<std::size_t>(object->attr->numanode.local_memory)});
  std::sort(all.begin(), all.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.os_index < b.os_index; });
  std::vector<NumaNode> nodes;
  CpuSet taken;
  for (NumaNode& node : all) {
    if (node.cpus.empty() || !common(node.cpus, taken).empty()) continue;
    taken = joined(taken, node.cpus);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<CpuSet> physical_cores(hwloc_topology_t topology) {
  // Some virtual machines list no cores: then every logical processor counts as one.
  const bool listed = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  std::vector<CpuSet> cores;
  hwloc_obj_t object = nullptr;
  while ((object =
              hwloc_get_next_obj_by_type(topology, listed ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU, object)))
    cores.push_back(to_cpus(object->cpuset));
  return cores;
}

/// The compute driver's view of a PCI device, if the description contains one.
hwloc_obj_t compute_device(hwloc_obj_t pci) {
  for (hwloc_obj_t child = pci->io_first_child; child; child = child->next_sibling) {
    const char* backend = info_of(child, "Backend");
    if (child->type != HWLOC_OBJ_OS_DEVICE || !backend) continue;
    for (const char* known : {"CUDA", "NVML", "RSMI"})
      if (std::strcmp(backend, known) == 0) return child;
  }
  return nullptr;
}

/// A server's on-board console is a display controller too. So when no compute driver knows the
/// device, only makers of GPUs for computing count.
bool is_gpu(hwloc_obj_t pci) {
  constexpr unsigned short vga = 0x0300, three_d = 0x0302, other_display = 0x0380;
  constexpr unsigned short nvidia = 0x10de, amd = 0x1002;
  const auto& device = pci->attr->pcidev;
  const bool maker = device.vendor_id == nvidia || device.vendor_id == amd;
  const bool display = device.class_id == vga || device.class_id == other_display;
  return compute_device(pci) || device.class_id == three_d || (maker && display);
}

std::string pci_name(hwloc_obj_t pci) {
  if (const char* model = info_of(pci, "PCIDevice")) return model;
  return fmt::format("PCI {:04x}:{:04x}", pci->attr->pcidev.vendor_id, pci->attr->pcidev.device_id);
}

std::string gpu_name(hwloc_obj_t pci) {
  const char* model = info_of(compute_device(pci), "GPUModel");
  return model ? model : pci_name(pci);
}

std::string bus_id_of(hwloc_obj_t pci) {
  const auto& at = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
}

PciPath path_of(hwloc_obj_t pci) {
  PciPath path;
  for (hwloc_obj_t at = pci->parent; at; at = at->parent) path.push_back(at->gp_index);
  std::reverse(path.begin(), path.end());
  return path;
}

/// The outermost link to a PCI device: that of the device itself, or of the last bridge above it.
hwloc_obj_t uplink_of(hwloc_obj_t pci) {
  hwloc_obj_t link = pci;
  for (hwloc_obj_t at = pci->parent; at && at->type == HWLOC_OBJ_BRIDGE; at = at->parent)
    if (at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) link = at;
  return link;
}

/// hwloc keeps a link's speed in 10^9 bytes a second, 0 where it is not known.
double link_speed(hwloc_obj_t object) {
  const auto& pci =
      object->type == HWLOC_OBJ_BRIDGE ? object->attr->bridge.upstream.pci : object->attr->pcidev;
  return static_cast<double>(pci.linkspeed);
}

CpuSet cpus_near(hwloc_topology_t topology, hwloc_obj_t pci) {
  return to_cpus(hwloc_get_non_io_ancestor_obj(topology, pci)->cpuset);
}

std::vector<Gpu> gpus_of(hwloc_topology_t topology) {
  std::vector<Gpu> gpus;
  hwloc_obj_t pci = nullptr;
  while ((pci = hwloc_get_next_pcidev(topology, pci))) {
    if (is_gpu(pci))
      gpus.push_back({gpu_name(pci), bus_id_of(pci), cpus_near(topology, pci), path_of(pci),
                      link_speed(pci), link_speed(uplink_of(pci)), uplink_of(pci)->gp_index});
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.pci_bus_id < b.pci_bus_id; });
  return gpus;
}

/// As a number: a file from another hwloc may contain kinds that are not in this one's enumeration,
/// and must not be read as its values.
unsigned kind_of(hwloc_obj_t os_device) {
  unsigned kind = 0;
  static_assert(sizeof kind == sizeof os_device->attr->osdev.type);
  std::memcpy(&kind, &os_device->attr->osdev.type, sizeof kind);
  return kind;
}

/// The system's names of a card: "mlx5_0 (ib0)".
std::string network_name(hwloc_obj_t pci) {
  std::string hcas, interfaces;
  for (hwloc_obj_t child = pci->io_first_child; child; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name) continue;
    const unsigned kind = kind_of(child);
    if (kind != HWLOC_OBJ_OSDEV_OPENFABRICS && kind != HWLOC_OBJ_OSDEV_NETWORK) continue;
    std::string& names = kind == HWLOC_OBJ_OSDEV_OPENFABRICS ? hcas : interfaces;
    names += (names.empty() ? "" : ", ") + std::string(child->name);
  }
  if (hcas.empty()) return interfaces;
  return interfaces.empty() ? hcas : fmt::format("{} ({})", hcas, interfaces);
}

bool has_hca(hwloc_obj_t pci) {
  for (hwloc_obj_t child = pci->io_first_child; child; child = child->next_sibling)
    if (child->type == HWLOC_OBJ_OS_DEVICE && kind_of(child) == HWLOC_OBJ_OSDEV_OPENFABRICS)
      return true;
  constexpr unsigned short infiniband = 0x0207, omni_path = 0x0208;
  const unsigned short kind = pci->attr->pcidev.class_id;
  return kind == infiniband || kind == omni_path;
}

/// For this machine's own cards. A card in an unknown state counts as up.
bool is_up(hwloc_obj_t pci) {
  bool known = false;
  for (hwloc_obj_t child = pci->io_first_child; child; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name) continue;
    const std::string state =
        kind_of(child) == HWLOC_OBJ_OSDEV_OPENFABRICS
            ? first_line(fmt::format("/sys/class/infiniband/{}/ports/1/state", child->name))
            : first_line(fmt::format("/sys/class/net/{}/operstate", child->name));
    if (state == "up" || state == "unknown" || state.ends_with("ACTIVE")) return true;
    known |= !state.empty();
  }
  return !known;
}

/// A description may contain PCI devices without the system's names for them.
std::vector<NetworkCard> networks_of(hwloc_topology_t topology, bool here) {
  constexpr unsigned short network_class = 0x02;
  std::vector<NetworkCard> networks;
  hwloc_obj_t pci = nullptr;
  while ((pci = hwloc_get_next_pcidev(topology, pci))) {
    std::string name = network_name(pci);
    if (name.empty() && pci->attr->pcidev.class_id >> 8 != network_class) continue;
    networks.push_back({name.empty() ? pci_name(pci) : std::move(name), bus_id_of(pci),
                        has_hca(pci), !here || is_up(pci), cpus_near(topology, pci), path_of(pci),
                        link_speed(pci)});
  }
  std::sort(networks.begin(), networks.end(),
            [](const NetworkCard& a, const NetworkCard& b) { return a.pci_bus_id < b.pci_bus_id; });
  return networks;
}

}  // namespace

Machine look_at_machine(const std::optional<std::string>& xml_path) {
  const Topology owner = load(xml_path);
  const hwloc_topology_t topology = owner.get();
  if (!xml_path) require_this_system(topology);
  Machine machine;
  machine.model = model_of(topology);
  machine.numa = numa_nodes(topology);
  machine.cores = physical_cores(topology);
  machine.gpus = gpus_of(topology);
  machine.networks = networks_of(topology, !xml_path);
  machine.allowed = to_cpus(hwloc_topology_get_allowed_cpuset(topology));
  require(!machine.allowed.empty(), fmt::format("{}: it describes no processor that may be used",
                                                xml_path.value_or("this machine's description")));
  machine.foreign = xml_path.has_value();
  return machine;
}

Machine without_cpus(Machine machine, const CpuSet& hidden) {
  CpuSet there;
  for (const CpuSet& core : machine.cores) there = joined(there, core);
  require(contains(there, hidden),
          fmt::format("CPUs {} cannot be hidden: the machine has {}",
                      to_string(without(hidden, there)), to_string(there)));
  const CpuSet left = without(machine.allowed, hidden);
  require(!left.empty(), fmt::format("hiding CPUs {} leaves none of the allowed ones ({})",
                                     to_string(hidden), to_string(machine.allowed)));
  machine.allowed = left;
  return machine;
}

}  // namespace lockstep::cluster
