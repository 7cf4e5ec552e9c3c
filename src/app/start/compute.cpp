#include "app/start/compute.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "app/start/bound_rank.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/gpu_choice.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/comm/worlds/tcp_communicator.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/observe/binding_record.hpp"

namespace lockstep::app {
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

}  // namespace

std::string decide_backend(Launch& launch, const std::string& asked) {
  if (asked == "clock" && launch.rank.rank == 0)
    log::warn(
        "--backend clock is a rehearsal: steps wait, nothing is trained, and checkpoints "
        "hold zeros instead of a model");
  if (asked == "cpu" || asked == "clock") return asked;
  const device::VisibleGpus seen = device::look_at_gpus();
  const auto without = comm::read_record<NoGpu>(
      launch.control
          ? launch.control->combine(seen.absence, "choice of the backend", find_without_gpu)
          : find_without_gpu({seen.absence}));
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
    if (launch.independent || launch.nodes.leads_node(launch.rank.rank)) log::info(remark);
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
  compute.spare_cores = plan.loader_shares_cores ? 0 : plan.loader.size();
  return compute;
}

std::unique_ptr<comm::Communicator> connect(Launch& launch, Compute& compute,
                                            const comm::NcclSpec& spec) {
  if (compute.backend->name() == "cuda") {
    comm::NcclSpec nccl = spec;
    nccl.find_absence = launch.find_absence();
    return comm::make_nccl_communicator(*launch.control, nccl);
  }
  return connect_cpus(launch, spec.deadline_s);
}

std::unique_ptr<comm::Communicator> connect_cpus(Launch& launch, double deadline_s) {
  if (launch.world) return launch.world->make_communicator(deadline_s, launch.activity);
  return comm::make_tcp_communicator(
      *launch.control,
      {.host = launch.rank.host, .deadline_s = deadline_s, .find_absence = launch.find_absence()});
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
