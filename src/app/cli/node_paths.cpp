#include "app/cli/node_paths.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/cli/table.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/study/machine/node_paths.hpp"

namespace lockstep::app {

nlohmann::ordered_json show_node_paths(const std::string& hwloc_xml,
                                       const study::MachineProfile& profile) {
  using Json = nlohmann::ordered_json;
  const cluster::Machine machine = cluster::look_at_machine(hwloc_xml);
  const double cross_gb_per_s =
      profile.cross_gb_per_s > 0 ? profile.cross_gb_per_s : study::usual_cross_gb_per_s;
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows{
      {"GPU", "NUMA node", "bound GB/s", "unbound GB/s", "card", "GPUs on it", "card GB/s"}};
  for (const study::RankPath& path : study::node_paths(machine, cross_gb_per_s)) {
    rows.push_back(
        {path.pci_bus_id, std::to_string(path.numa), fmt::format("{:.1f}", path.bound_gb_per_s),
         fmt::format("{:.1f}", path.unbound_gb_per_s), path.card.empty() ? "none" : path.card,
         std::to_string(path.card_gpus),
         fmt::format("{:.1f}{}", path.card_gb_per_s, path.card_across ? ", other socket" : "")});
    list.push_back({{"gpu", path.gpu},
                    {"pci_bus_id", path.pci_bus_id},
                    {"numa", path.numa},
                    {"bound_gb_per_s", path.bound_gb_per_s},
                    {"unbound_gb_per_s", path.unbound_gb_per_s},
                    {"card", path.card},
                    {"card_gpus", path.card_gpus},
                    {"card_across", path.card_across},
                    {"card_gb_per_s", path.card_gb_per_s}});
  }
  log::info(fmt::format("{}: {}, {}, {:.0f} GB/s between sockets", hwloc_xml,
                        counted(machine.gpus.size(), "GPU"),
                        counted(machine.numa.size(), "NUMA node"), cross_gb_per_s));
  if (!list.empty()) log::text(table(rows));
  return list;
}

}  // namespace lockstep::app
