#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cluster/traps/trap_table.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

constexpr double least_shared_bytes = 512e6;

/// Ranks on GPUs of several nodes.
bool spans_nodes(const NodeLook& look) { return joins_gpus(look) && joins_nodes(look); }

std::vector<std::string> names_of(const std::vector<HcaFacts>& hcas) {
  std::vector<std::string> names;
  for (const HcaFacts& hca : hcas) names.push_back(hca.name);
  return names;
}

/// NCCL's version as 22105 for 2.21.5; 0: not known.
int nccl_version(const NodeLook& look) {
  const auto library = look.libraries.find("libnccl");
  constexpr std::string_view title = "libnccl.so.";
  if (library == look.libraries.end() || !library->second.starts_with(title)) return 0;
  std::string_view text = std::string_view(library->second).substr(title.size());
  text = text.substr(0, text.find(' '));
  int version = 0, places = 0;
  while (!text.empty() && places < 3) {
    const std::string_view part = text.substr(0, text.find('.'));
    version = 100 * version + whole_number<int>(part).value_or(0);
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    ++places;
  }
  return places == 3 ? version : 0;
}

Found no_interface(const NodeLook& look) {
  const std::string value = look.value("NCCL_SOCKET_IFNAME");
  if (!joins_gpus(look) || value.empty() || look.interfaces.empty()) return {};
  const NcclNames names = read_nccl_names(value);
  if (std::ranges::any_of(look.interfaces,
                          [&](const InterfaceFacts& one) { return names.selects(one.name); }))
    return {};
  std::vector<std::string> here;
  for (const InterfaceFacts& one : look.interfaces) here.push_back(one.name);
  return Trapped{fmt::format("NCCL_SOCKET_IFNAME={} names no interface of this node ({}): NCCL "
                             "fails while it starts",
                             value, join(here, ", ")),
                 unset({"NCCL_SOCKET_IFNAME"})};
}

Found loopback(const NodeLook& look) {
  if (!spans_nodes(look) || look.value("NCCL_SOCKET_IFNAME") != "lo") return {};
  return Trapped{"NCCL_SOCKET_IFNAME=lo does not lead to another node",
                 unset({"NCCL_SOCKET_IFNAME"})};
}

Found bridge_chosen(const NodeLook& look) {
  std::vector<std::string> bad;
  for (const std::string& one : bridges(look))
    if (!one.starts_with("docker")) bad.push_back(one);  // which NCCL leaves out
  if (!spans_nodes(look) || bad.empty() || look.has("NCCL_SOCKET_IFNAME") ||
      !active_hcas(look).empty() || look.slingshot_cards > 0 || has_efa(look))
    return {};
  return Trapped{fmt::format("NCCL takes {} too, which leads only to this node's containers or "
                             "guests: connections time out",
                             join(bad, ", ")),
                 exported("NCCL_SOCKET_IFNAME", "^lo,docker,virbr,br-,veth,cni,lxc")};
}

Found ib_disabled(const NodeLook& look) {
  const auto active = active_hcas(look);
  if (!spans_nodes(look) || look.value("NCCL_IB_DISABLE") != "1" || active.empty()) return {};
  return Trapped{fmt::format("NCCL_IB_DISABLE=1 keeps NCCL from {}, InfiniBand and RoCE alike",
                             join(names_of(active), ", ")),
                 unset({"NCCL_IB_DISABLE"})};
}

Found no_hca(const NodeLook& look) {
  const std::string value = look.value("NCCL_IB_HCA");
  const auto active = active_hcas(look);
  if (!spans_nodes(look) || value.empty() || active.empty()) return {};
  const NcclNames names = read_nccl_names(value);
  if (std::ranges::any_of(active, [&](const HcaFacts& one) { return names.selects(one.name); }))
    return {};
  return Trapped{fmt::format("NCCL_IB_HCA={} names none of this node's active devices ({}): NCCL "
                             "takes sockets and does not say so",
                             value, join(names_of(active), ", ")),
                 unset({"NCCL_IB_HCA"})};
}

Found repeated_signs(const NodeLook& look) {
  const std::string value = look.value("NCCL_IB_HCA");
  if (value.find_last_of("^=") == value.npos || value.find_last_of("^=") < 2) return {};
  std::string names;
  for (const char c : value.substr(value.find_first_not_of("^=")))
    if (c != '^' && c != '=') names += c;
  const std::string signs = value.substr(0, value.find_first_not_of("^="));
  return Trapped{
      fmt::format("NCCL_IB_HCA={}: ^ and = are written once, and hold for all names", value),
      exported("NCCL_IB_HCA", signs + names)};
}

Found mixed_fabrics(const NodeLook& look) {
  std::vector<std::string> infiniband, ethernet;
  for (const HcaFacts& hca : active_hcas(look))
    (hca.ethernet ? ethernet : infiniband).push_back(hca.name);
  if (!spans_nodes(look) || infiniband.empty() || ethernet.empty() || look.has("NCCL_IB_HCA"))
    return {};
  return Trapped{fmt::format("NCCL also takes {}: Ethernet, which may be for storage or "
                             "management",
                             join(ethernet, ", ")),
                 exported("NCCL_IB_HCA", "=" + join(infiniband, ","))};
}

/// The first address of RoCE v2 that stands for an IPv4 address.
std::optional<int> routable_gid(const HcaFacts& hca) {
  for (const GidFacts& gid : hca.gids)
    if (gid.type == "RoCE v2" && gid.gid.starts_with("0000:0000:0000:0000:0000:ffff"))
      return gid.index;
  return {};
}

Found first_gid(const NodeLook& look) {
  constexpr int first_that_chooses = 22100;
  const int version = nccl_version(look);
  const auto active = active_hcas(look);
  if (!spans_nodes(look) || version == 0 || version >= first_that_chooses || active.empty() ||
      look.has("NCCL_IB_GID_INDEX"))
    return {};
  for (const HcaFacts& hca : active) {
    const auto gid = hca.ethernet ? routable_gid(hca) : std::nullopt;
    if (gid.value_or(0) == 0) continue;
    return Trapped{fmt::format("NCCL before 2.21 takes the address 0 of RoCE on {}, which switches "
                               "do not route; {} is one of RoCE v2",
                               hca.name, *gid),
                   exported("NCCL_IB_GID_INDEX", std::to_string(*gid))};
  }
  return {};
}

Found missing_gid(const NodeLook& look) {
  const auto index = whole_number<int>(look.value("NCCL_IB_GID_INDEX"));
  if (!spans_nodes(look) || !index || *index >= 8) return {};
  for (const HcaFacts& hca : active_hcas(look)) {
    if (!hca.ethernet) continue;
    if (std::ranges::find(hca.gids, *index, &GidFacts::index) != hca.gids.end()) continue;
    return Trapped{fmt::format("NCCL_IB_GID_INDEX={}: {} has no such address", *index, hca.name),
                   unset({"NCCL_IB_GID_INDEX"})};
  }
  return {};
}

Found foreign_graph(const NodeLook& look) {
  const std::string graph = look.value("NCCL_GRAPH_FILE"), topology = look.value("NCCL_TOPO_FILE");
  if (look.gpus == 0) return {};
  if (!graph.empty())
    return Trapped{fmt::format("NCCL_GRAPH_FILE={} fits only the GPUs that it was made for", graph),
                   unset({"NCCL_GRAPH_FILE"})};
  if (topology.empty() || look.has_file(topology)) return {};
  return Trapped{fmt::format("NCCL_TOPO_FILE={}: no such file on this node", topology),
                 unset({"NCCL_TOPO_FILE"})};
}

/// Bytes of a tmpfs by its option size=; infinity where it has none.
double size_of(const MountFacts& mount) {
  for (const std::string& option : listed(mount.options)) {
    if (!option.starts_with("size=")) continue;
    std::string_view text = std::string_view(option).substr(5);
    const char unit = text.empty() ? ' ' : text.back();
    const double scale = unit == 'k' ? 1024.0 : unit == 'm' ? 1048576.0 : unit == 'g' ? 0x1p30 : 1;
    if (scale > 1) text.remove_suffix(1);
    return scale * real_number(text).value_or(std::numeric_limits<double>::infinity());
  }
  return std::numeric_limits<double>::infinity();
}

Found small_shared_memory(const NodeLook& look) {
  const MountFacts mount = look.mount_of("/dev/shm");
  const double bytes = size_of(mount);
  if (look.gpus < 2 || look.ranks_here < 2 || mount.path != "/dev/shm" ||
      bytes >= least_shared_bytes || look.value("NCCL_SHM_DISABLE") == "1")
    return {};
  return Trapped{fmt::format("/dev/shm has {:.0f} MB, too little for NCCL between {} ranks: give "
                             "the container more (docker run --shm-size=1g), or",
                             bytes / 1e6, look.ranks_here),
                 exported("NCCL_SHM_DISABLE", "1")};
}

Found peers_off(const NodeLook& look) {
  if (look.gpus < 2 || look.ranks_here < 2 || look.value("NCCL_P2P_DISABLE") != "1") return {};
  return Trapped{
      "NCCL_P2P_DISABLE=1: this node's GPUs exchange data through the host's memory. It is needed "
      "only where they hang otherwise",
      unset({"NCCL_P2P_DISABLE"})};
}

Found slingshot_unused(const NodeLook& look) {
  if (!spans_nodes(look) || look.slingshot_cards == 0 || look.has("NCCL_NET") ||
      look.has("NCCL_NET_PLUGIN"))
    return {};
  return Trapped{
      "NCCL finds Slingshot only by the plugin aws-ofi-nccl, and takes sockets where it does not "
      "find that; this makes it an error",
      exported("NCCL_NET", "AWS Libfabric")};
}

Found slingshot_left_out(const NodeLook& look) {
  const std::string net = look.value("NCCL_NET");
  if (!spans_nodes(look) || look.slingshot_cards == 0 || (net != "IB" && net != "Socket"))
    return {};
  return Trapped{fmt::format("NCCL_NET={} on a node with Slingshot", net),
                 exported("NCCL_NET", "AWS Libfabric")};
}

Found plugin_twice(const NodeLook& look) {
  if (!spans_nodes(look) || look.value("NCCL_NET_PLUGIN") != "ofi" ||
      look.value("NCCL_NET").find("Libfabric") == std::string::npos)
    return {};
  return Trapped{"NCCL_NET_PLUGIN=ofi and NCCL_NET contradict each other in some versions of NCCL",
                 unset({"NCCL_NET_PLUGIN"})};
}

Found memory_hooks(const NodeLook& look) {
  const std::string monitor = look.value("FI_MR_CACHE_MONITOR");
  if (!spans_nodes(look) || look.slingshot_cards == 0 || !open_mpi_major(look) ||
      (!monitor.empty() && monitor != "memhooks"))
    return {};
  return Trapped{
      "libfabric's hooks for memory, Open MPI's and CUDA wait for each other: training may stop "
      "for ever",
      exported("FI_MR_CACHE_MONITOR", "userfaultfd")};
}

Found efa_without_plugin(const NodeLook& look) {
  constexpr const char* home = "/opt/amazon/ofi-nccl/lib";
  const std::string paths = look.value("LD_LIBRARY_PATH");
  const bool known =
      paths.find("ofi-nccl") != paths.npos || look.has_file("/etc/ld.so.conf.d/100_ofinccl.conf");
  if (!spans_nodes(look) || !has_efa(look) || known || look.has("NCCL_NET_PLUGIN") ||
      !look.has_file(home))
    return {};
  return Trapped{"the loader does not find EFA's plugin for NCCL, which then takes sockets",
                 exported("LD_LIBRARY_PATH", paths.empty() ? home : home + (":" + paths))};
}

Found hidden_devices(const NodeLook& look) {
  const bool any = !active_hcas(look).empty() || has_efa(look);
  if (!joins_nodes(look) || !any || look.has_file("/dev/infiniband/uverbs0") ||
      look.value("MELLANOX_VISIBLE_DEVICES") == "all")
    return {};
  return Trapped{
      "the container sees no /dev/infiniband, so that NCCL and UCX take sockets: docker run "
      "--device=/dev/infiniband; with enroot and pyxis",
      exported("MELLANOX_VISIBLE_DEVICES", "all")};
}

constexpr Trap nccl_table[] = {
    {"nccl-interface", "NVIDIA/nccl#1837", certain, files, no_interface},
    {"nccl-loopback", "NVIDIA/nccl#286", certain, settings, loopback},
    {"nccl-bridge", "NVIDIA/nccl#941", perhaps, files, bridge_chosen},
    {"nccl-without-ib", "scottclowe/pytorch-experiment-template#11", certain, files, ib_disabled},
    {"nccl-hca", "hiyouga/LlamaFactory#6111", certain, files, no_hca},
    {"nccl-hca-signs", "NVIDIA/nccl-tests#150", certain, settings, repeated_signs},
    {"nccl-mixed", "NVIDIA/pyxis#60", perhaps, files, mixed_fabrics},
    {"roce-first-address", "NVIDIA/nccl#426", perhaps, files, first_gid},
    {"roce-address", "openucx/ucx#7785", certain, files, missing_gid},
    {"nccl-graph", "NVIDIA/nccl#1008", certain, files, foreign_graph},
    {"small-shared-memory", "NVIDIA/nccl#342", certain, files, small_shared_memory},
    {"nccl-without-peers", "NVIDIA/nccl#631", perhaps, settings, peers_off},
    {"slingshot-unused", "eth-cscs/cscs-docs#75", certain, files, slingshot_unused},
    {"slingshot-left-out", "determined-ai/environments#169", certain, files, slingshot_left_out},
    {"slingshot-plugin-twice", "eth-cscs/cscs-docs#75", certain, settings, plugin_twice},
    {"slingshot-memory-hooks", "ofiwg/libfabric#9003", certain, files, memory_hooks},
    {"efa-plugin", "SemiAnalysisAI/InferenceX#2979", certain, files, efa_without_plugin},
    {"hidden-infiniband", "NVIDIA/nccl#451", certain, files, hidden_devices},
};

}  // namespace

std::span<const Trap> nccl_traps() { return nccl_table; }

}  // namespace lockstep::cluster
