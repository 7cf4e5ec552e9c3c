#include "lockstep/study/machine/node_paths.hpp"

#include <algorithm>
#include <map>

namespace lockstep::study {
namespace {

using cluster::CpuSet;
using cluster::Machine;

double link_of(double described) { return described > 0 ? described : usual_link_gb_per_s; }

std::size_t numa_of(const Machine& machine, const CpuSet& near) {
  for (std::size_t n = 0; n < machine.numa.size(); ++n)
    if (!cluster::common(machine.numa[n].cpus, near).empty()) return n;
  return 0;
}

std::size_t shared_ancestors(const cluster::PciPath& a, const cluster::PciPath& b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(differ.first - a.begin());
}

/// A part of the memory is near, the rest is reached through the link between the sockets, which
/// those ranks share; as many of them go one way as the other.
double unbound(double near_gb_per_s, std::size_t gpus, std::size_t numa, double cross_gb_per_s) {
  if (numa <= 1) return near_gb_per_s;
  const double away = 1 - 1 / static_cast<double>(numa);
  const double far =
      std::min(near_gb_per_s, cross_gb_per_s / (static_cast<double>(gpus) * away / 2));
  return 1 / ((1 - away) / near_gb_per_s + away / far);
}

/// The index of the nearest card that is up; all of them where none is.
std::size_t nearest_card(const Machine& machine, const cluster::Gpu& gpu) {
  std::size_t best = machine.networks.size(), most = 0;
  for (std::size_t c = 0; c < machine.networks.size(); ++c) {
    const std::size_t shared = shared_ancestors(machine.networks[c].path, gpu.path);
    const bool first = best == machine.networks.size();
    if (machine.networks[c].up && (first || shared > most)) best = c, most = shared;
  }
  return best;
}

}  // namespace

std::vector<RankPath> node_paths(const Machine& machine, double cross_gb_per_s) {
  std::vector<RankPath> paths;
  std::vector<std::size_t> cards;
  std::map<std::size_t, std::size_t> users, crossing;
  for (const cluster::Gpu& gpu : machine.gpus) {
    RankPath path;
    path.gpu = gpu.name;
    path.pci_bus_id = gpu.pci_bus_id;
    path.numa = numa_of(machine, gpu.near_cpus);
    // Siblings below one switch share its link to the processor.
    const auto siblings =
        std::count_if(machine.gpus.begin(), machine.gpus.end(),
                      [&gpu](const cluster::Gpu& other) { return other.uplink == gpu.uplink; });
    path.bound_gb_per_s = std::min(link_of(gpu.link_gb_per_s),
                                   link_of(gpu.uplink_gb_per_s) / static_cast<double>(siblings));
    path.unbound_gb_per_s =
        unbound(path.bound_gb_per_s, machine.gpus.size(), machine.numa.size(), cross_gb_per_s);
    cards.push_back(nearest_card(machine, gpu));
    if (cards.back() < machine.networks.size()) {
      const cluster::NetworkCard& card = machine.networks[cards.back()];
      path.card = card.name;
      path.card_across = numa_of(machine, card.near_cpus) != path.numa;
      ++users[cards.back()];
      crossing[cards.back()] += path.card_across ? 1 : 0;
    }
    paths.push_back(std::move(path));
  }
  for (std::size_t g = 0; g < paths.size(); ++g) {
    RankPath& path = paths[g];
    if (path.card.empty()) continue;
    const cluster::NetworkCard& card = machine.networks[cards[g]];
    path.card_gpus = users[cards[g]];
    path.card_gb_per_s =
        std::min(link_of(machine.gpus[g].link_gb_per_s),
                 link_of(card.link_gb_per_s) / static_cast<double>(path.card_gpus));
    if (path.card_across)
      path.card_gb_per_s =
          std::min(path.card_gb_per_s, cross_gb_per_s / static_cast<double>(crossing[cards[g]]));
  }
  return paths;
}

}  // namespace lockstep::study
