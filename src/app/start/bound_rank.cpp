// Why binding comes before threads. Threads inherit the mask and pages are placed by first touch;
// binding later repairs neither.
#include "app/start/bound_rank.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/device/gpus.hpp"

namespace lockstep::app {
namespace {

struct Card {
  std::string cpus, gpu_pci_bus_id;

  static void fields(auto& self, auto&& visit) { visit(self.cpus, self.gpu_pci_bus_id); }
};

/// Processes that a launcher started together, without a mask for each, divide its CPUs also where
/// they do not know of each other.
bool are_undivided(const Launch& launch, const cluster::Machine& machine,
                   const cluster::CpuSet& mask) {
  std::size_t given = 0;
  for (const cluster::CpuSet& core : machine.cores) given += core.size();
  if (const auto job = cluster::process_environment()("SLURM_CPUS_ON_NODE"))
    given = std::min<std::size_t>(given, whole_number<std::uint64_t>(*job).value_or(given));
  return launch.independent && launch.rank.local_size > 1 && mask.size() >= given;
}

}  // namespace

ChosenGpu choose_gpu(const cluster::RankInfo& rank, const std::string& backend, bool share) {
  if (backend != "cuda") return {};
  const device::VisibleGpus seen = device::look_at_gpus();
  require(!seen.gpus.empty(), fmt::format("--backend cuda: {}", seen.absence));
  const std::size_t mine = cluster::choose_gpu(rank, seen.gpus.size(), share);
  return {static_cast<int>(mine), seen.gpus[mine].pci_bus_id};
}

RankPlan plan_rank(Launch& launch, const cluster::Machine& machine, std::size_t compute_threads,
                   const std::string& gpu_pci_bus_id) {
  const Card mine{cluster::to_string(cluster::current_cpus()), gpu_pci_bus_id};
  std::vector<Card> cards{mine};
  if (launch.control) cards = comm::gather_records(*launch.control, mine, "placement");
  RankPlan placed;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    placed.gpus.push_back(
        {launch.nodes.machine_of(static_cast<int>(rank)), cards[rank].gpu_pci_bus_id});
  std::vector<cluster::LocalRank> here;
  std::size_t my_place = 0;
  for (const int rank : launch.nodes.ranks_on_machine_of(launch.control ? launch.rank.rank : 0)) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    if (rank == launch.rank.rank) my_place = here.size();
    here.push_back({cluster::parse_cpus(card.cpus), card.gpu_pci_bus_id});
  }
  if (are_undivided(launch, machine, here[0].mask)) {
    here.resize(static_cast<std::size_t>(launch.rank.local_size), here[0]);
    my_place = static_cast<std::size_t>(launch.rank.local_rank);
  }
  placed.plan =
      cluster::plan_binding(machine, cluster::request_among(here, my_place, compute_threads));
  return placed;
}

BoundRank bind_rank(const cluster::Plan& plan, std::optional<int> cuda_device,
                    const std::optional<backend::Pace>& pace) {
  BoundRank rank;
  rank.report = cluster::bind_process(plan);
  rank.backend = pace          ? backend::make_clock_backend(*pace)
                 : cuda_device ? backend::make_cuda_backend(*cuda_device)
                               : backend::make_cpu_backend({plan.compute});
  if (rank.backend->name() == "cpu") cluster::verify_threads(rank.report);
  device::Device& device = rank.backend->device();
  const device::PinnedBuffer sample = device.allocate_pinned(std::size_t{8} << 20);
  std::memset(sample.data(), 1, sample.size());
  cluster::verify_pages(rank.report, "pinned", {{sample.data(), sample.size()}});
  rank.report.upload_bytes_per_s = device.upload_rate(sample);
  return rank;
}

}  // namespace lockstep::app
