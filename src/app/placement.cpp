#include "placement.hpp"

#include <fmt/core.h>

#include <fstream>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/io.hpp"
#include "lockstep/device/gpus.hpp"

namespace lockstep::app {
namespace {

/// Names the running kernel, so that ranks share cores when they really do: containers on one
/// machine have different host names, and cloned machines the same one.
std::string machine_id(const std::string& host) {
  const std::string id = boot_id();
  return id.empty() ? host : id;
}

struct Card {
  std::string machine;
  sys::LocalRank rank;
};

std::string to_text(const Card& card) {
  return fmt::format("{}\n{}\n{}\n", card.machine, sys::to_string(card.rank.mask),
                     card.rank.gpu_pci_bus_id);
}

Card parse_card(const std::string& text) {
  std::istringstream lines(text);
  Card card;
  std::string mask;
  std::getline(lines, card.machine);
  std::getline(lines, mask);
  std::getline(lines, card.rank.gpu_pci_bus_id);
  check(!lines.fail(), "a rank's placement has three lines");
  card.rank.mask = sys::parse_cpus(mask);
  return card;
}

}  // namespace

ChosenGpu choose_gpu(const sys::RankInfo& rank, const std::string& backend, bool share) {
  if (backend != "cuda") return {};
  const VisibleGpus seen = look_at_gpus();
  require(!seen.gpus.empty(), fmt::format("--backend cuda: {}", seen.absence));
  const std::size_t mine = sys::choose_gpu(rank, seen.gpus.size(), share);
  return {static_cast<int>(mine), seen.gpus[mine].pci_bus_id};
}

Placement plan_rank(Launch& launch, const sys::Machine& machine, std::size_t compute_threads,
                    const std::string& gpu_pci_bus_id) {
  const Card mine{machine_id(launch.rank.host), {sys::current_cpus(), gpu_pci_bus_id}};
  std::vector<std::string> cards{to_text(mine)};
  if (launch.control) cards = launch.control->gather(cards.front(), "placement");
  std::vector<sys::LocalRank> here;
  std::size_t my_place = 0;
  Placement placement;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card card = parse_card(cards[rank]);
    placement.gpus.push_back({card.machine, card.rank.gpu_pci_bus_id});
    if (card.machine != mine.machine) continue;
    if (static_cast<int>(rank) == launch.rank.rank) my_place = here.size();
    here.push_back(card.rank);
  }
  placement.plan = sys::plan_binding(machine, sys::request_among(here, my_place, compute_threads));
  return placement;
}

}  // namespace lockstep::app
