#include "app/start/compute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "lockstep/base/cgroup.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/observe/binding_record.hpp"

// Why binding comes before threads. Threads inherit the mask and pages are placed by first touch;
// binding later repairs neither.

namespace lockstep::app {
namespace {

struct Card {
  std::string cpus, gpu_pci_bus_id;
  std::uint64_t group = 0;  ///< whose quota it shares; 0: none

  static void fields(auto& self, auto&& visit) {
    visit(self.cpus, self.gpu_pci_bus_id, self.group);
  }
};

/// Processes that a launcher started together, without a mask for each, divide its CPUs also where
/// they do not know of each other.
bool are_undivided(const Launch& launch, const cluster::Machine& machine,
                   const cluster::CpuSet& mask) {
  std::size_t given = 0;
  for (const cluster::CpuSet& core : machine.cores) given += core.size();
  if (const auto job = cluster::process_environment()("SLURM_CPUS_ON_NODE"))
    given = std::min<std::size_t>(given, whole_number<std::uint64_t>(*job).value_or(given));
  return !launch.control && launch.rank.local_size > 1 && mask.size() >= given;
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
  const GroupLimits group = look_at_group();
  const Card mine{cluster::to_string(cluster::current_cpus()), gpu_pci_bus_id, group.group};
  std::vector<Card> cards{mine};
  if (launch.control) cards = comm::gather_records(*launch.control, mine, "placement");
  RankPlan placed;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    placed.gpus.push_back(
        {launch.nodes.machine_of(static_cast<int>(rank)), cards[rank].gpu_pci_bus_id});
  std::vector<cluster::LocalRank> here;
  std::size_t my_place = 0, sharers = 0;
  for (const int rank : launch.nodes.ranks_on_machine_of(launch.control ? launch.rank.rank : 0)) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    if (rank == launch.rank.rank) my_place = here.size();
    sharers += card.group == group.group;
    here.push_back({cluster::parse_cpus(card.cpus), card.gpu_pci_bus_id});
  }
  if (are_undivided(launch, machine, here[0].mask)) {
    here.resize(static_cast<std::size_t>(launch.rank.local_size), here[0]);
    my_place = static_cast<std::size_t>(launch.rank.local_rank);
    sharers = here.size();
  }
  cluster::PlanRequest request = cluster::request_among(here, my_place, compute_threads);
  request.quota_cores = group.cores / static_cast<double>(sharers);
  placed.plan = cluster::plan_binding(machine, request);
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

namespace {

void judge(const std::vector<std::string>& failures, bool required) {
  if (failures.empty()) return;
  const std::string what =
      fmt::format("the binding was not confirmed by reading it back: {}", join(failures, "; "));
  require(!required, what + " (--require-binding makes this an error)");
  log::warn(what);
}

/// Which ranks have no GPU, and why.
struct NoGpu {
  int rank = -1;  ///< the first of them; -1: all ranks have one
  std::string why;
  bool everywhere = true;

  static void fields(auto& self, auto&& visit) { visit(self.rank, self.why, self.everywhere); }
};

std::string find_without_gpu(const std::vector<std::string>& absences) {
  NoGpu found;
  for (std::size_t rank = 0; rank < absences.size(); ++rank) {
    if (absences[rank].empty())
      found.everywhere = false;
    else if (found.rank < 0)
      found.rank = static_cast<int>(rank), found.why = absences[rank];
  }
  return comm::write_record(found);
}

/// Why this process has no GPU that lockstep can use; empty where it has one.
std::string lack_of_gpus() {
  std::string lack = device::look_at_gpus().absence;
  if (!lack.empty() && std::filesystem::exists("/dev/kfd"))
    lack += "; AMD's GPUs (/dev/kfd) are not supported";
  return lack;
}

}  // namespace

std::string decide_backend(Launch& launch, const std::string& asked) {
  if (asked == "clock" && launch.rank.rank == 0)
    log::warn(
        "--backend clock is a rehearsal: steps wait, nothing is trained, and checkpoints "
        "hold zeros instead of a model");
  if (asked == "cpu" || asked == "clock") return asked;
  const std::string lack = lack_of_gpus();
  const auto without = comm::read_record<NoGpu>(
      launch.control ? launch.control->combine(lack, "choice of the backend", find_without_gpu)
                     : find_without_gpu({lack}));
  if (without.rank < 0) return "cuda";
  require(asked != "cuda", fmt::format("--backend cuda: rank {}: {}", without.rank, without.why));
  require(without.everywhere,
          fmt::format("--backend auto: some ranks have a GPU, but rank {}: {}. Start ranks "
                      "only where there are GPUs, or give --backend cpu",
                      without.rank, without.why));
  log::info(fmt::format("computing on the CPU: {}", without.why));
  return "cpu";
}

Compute prepare_compute(Launch& launch, const ComputeRequest& request) {
  const ChosenGpu gpu = choose_gpu(launch.rank, request.backend, request.share_gpu);
  const cluster::Machine machine = cluster::look_at_machine();
  const RankPlan placed = plan_rank(launch, machine, request.threads, gpu.pci_bus_id);
  if (!gpu.pci_bus_id.empty() && !request.share_gpu) cluster::require_own_gpus(placed.gpus);
  const cluster::Plan& plan = placed.plan;
  for (const std::string& remark : plan.remarks)
    if (!launch.control || launch.nodes.leads_node(launch.rank.rank)) log::info(remark);
  BoundRank bound = bind_rank(plan, gpu.ordinal, request.pace);
  judge(bound.report.failures, request.require_binding);

  Compute compute;
  compute.backend = std::move(bound.backend);
  compute.binding_report =
      [&launch, report = std::move(bound.report),
       required = request.require_binding](const std::vector<cluster::Memory>& loader) mutable {
        const auto said = static_cast<std::ptrdiff_t>(report.failures.size());
        if (!loader.empty()) cluster::verify_pages(report, "loader", loader);
        judge({report.failures.begin() + said, report.failures.end()}, required);
        const auto bindings = comm::gather_records_at_root(
            *launch.control, observe::rank_binding(report, launch.rank), "binding report");
        if (loader.empty())
          for (const std::string& line : observe::slow_uploads(bindings)) log::warn(line);
        return observe::to_json(bindings);
      };
  compute.bind_worker = [cpus = plan.loader] {
    if (!cpus.empty()) cluster::bind_thread(cpus);
  };
  for (const cluster::CpuSet& core : machine.cores)
    if (!cluster::common(core, plan.share).empty()) compute.cores.push_back(core.front());
  std::ranges::sort(compute.cores);
  compute.gpu_pci_bus_id = gpu.pci_bus_id;
  compute.spare_cores = plan.spare;
  return compute;
}

std::unique_ptr<comm::Communicator> connect(Launch& launch, Compute& compute,
                                            const comm::NcclSpec& spec) {
  if (compute.backend->name() == "cuda") {
    comm::NcclSpec nccl = spec;
    nccl.find_absence = launch.plane->find_absence();
    return comm::make_nccl_communicator(*launch.control, nccl);
  }
  return connect_cpus(launch, spec.deadline_s);
}

std::unique_ptr<comm::Communicator> connect_cpus(Launch& launch, double deadline_s) {
  return launch.plane->connect(deadline_s, launch.tensors.get());
}

std::unique_ptr<comm::Communicator> connect_two_level(Launch& launch, comm::Communicator& flat,
                                                      const std::string& all_reduce,
                                                      double deadline_s) {
  const bool asked = all_reduce == "two-level";
  if (flat.world() == 1 || (!asked && (all_reduce == "flat" || !has_two_levels(launch.nodes))))
    return nullptr;
  return comm::two_level_or_flat(flat, *launch.control, launch.nodes, {.deadline_s = deadline_s},
                                 asked ? "--comm.all-reduce two-level" : "");
}

}  // namespace lockstep::app
