#include "cluster/topology/nearest.hpp"

#include <strings.h>

#include <algorithm>

#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {
namespace {

using Cards = std::vector<const NetworkCard*>;

/// The cards for which `measure` is largest.
template <class Measure>
Cards best_by(const Cards& cards, Measure measure) {
  Cards best;
  for (const NetworkCard* card : cards) {
    if (best.empty() || measure(*card) > measure(*best.front())) best.clear();
    if (best.empty() || measure(*card) == measure(*best.front())) best.push_back(card);
  }
  return best;
}

std::size_t common_length(const PciPath& a, const PciPath& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

}  // namespace

const Gpu* find_gpu(const Machine& machine, const std::string& pci_bus_id) {
  for (const Gpu& gpu : machine.gpus)  // CUDA and hwloc write the hexadecimal digits differently
    if (strcasecmp(gpu.pci_bus_id.c_str(), pci_bus_id.c_str()) == 0) return &gpu;
  return nullptr;
}

// A far HCA still moves gradients faster than an Ethernet port next to the GPU.
const NetworkCard* nearest_network(const Machine& machine, const CpuSet& share, const Gpu* gpu,
                                   std::size_t turn) {
  Cards cards;
  for (const NetworkCard& card : machine.networks) cards.push_back(&card);
  if (cards.empty()) return nullptr;
  cards = best_by(cards, [](const NetworkCard& card) { return card.up; });
  cards = best_by(cards, [](const NetworkCard& card) { return card.hca; });
  if (!gpu) {
    cards = best_by(cards,
                    [&](const NetworkCard& card) { return common(card.near_cpus, share).size(); });
    return cards[turn % cards.size()];
  }
  const auto how_near = [&](const NetworkCard& card) {
    return common_length(card.path, gpu->path);
  };
  cards = best_by(cards, how_near);
  // The GPUs that are as near to these cards as this one take turns.
  std::size_t before = 0;
  for (const Gpu* other = machine.gpus.data(); other != gpu; ++other)
    before += common_length(other->path, cards.front()->path) == how_near(*cards.front());
  return cards[before % cards.size()];
}

}  // namespace lockstep::cluster
