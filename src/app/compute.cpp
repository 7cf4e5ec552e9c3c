#include "compute.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/sys/binding_report.hpp"
#include "lockstep/sys/gpu_choice.hpp"
#include "placement.hpp"

namespace lockstep::app {
namespace {

/// A GPU by CUDA's number, and its place in the machine.
struct ChosenGpu {
  int ordinal = 0;
  std::string pci_bus_id;  ///< empty without a GPU
};

ChosenGpu choose_gpu(const ComputeRequest& request, const sys::RankInfo& rank) {
  if (request.backend != "cuda") return {};
  const VisibleGpus seen = look_at_gpus();
  require(!seen.gpus.empty(), fmt::format("--backend cuda: {}", seen.absence));
  const std::size_t mine = sys::choose_gpu(rank, seen.gpus.size(), request.share_gpu);
  return {static_cast<int>(mine), seen.gpus[mine].pci_bus_id};
}

void judge(const sys::BindingReport& report, const sys::RankInfo& rank, bool required) {
  for (const std::string& remark : report.plan.remarks)
    if (rank.local_rank == 0) log::info(remark);
  if (report.ok) return;
  const std::string what = fmt::format("the binding was not confirmed by reading it back: {}",
                                       fmt::join(report.failures, "; "));
  require(!required, what + " (--require-binding makes this an error)");
  log::warn(what);
}

}  // namespace

std::string decide_backend(Launch& launch, const std::string& asked) {
  if (asked == "cpu") return asked;
  const VisibleGpus seen = look_at_gpus();
  const auto absences = launch.control->gather(seen.absence, "choice of the backend");
  const auto without = std::find_if(absences.begin(), absences.end(),
                                    [](const std::string& why) { return !why.empty(); });
  if (without == absences.end()) return "cuda";
  const auto rank = without - absences.begin();
  require(asked != "cuda", fmt::format("--backend cuda: rank {}: {}", rank, *without));
  const bool none = std::none_of(absences.begin(), absences.end(),
                                 [](const std::string& why) { return why.empty(); });
  require(none, fmt::format("--backend auto: some ranks have a GPU, but rank {}: {}. Start ranks "
                            "only where there are GPUs, or give --backend cpu",
                            rank, *without));
  log::info(fmt::format("computing on the CPU: {}", *without));
  return "cpu";
}

Compute prepare_compute(Launch& launch, const ComputeRequest& request) {
  const ChosenGpu gpu = choose_gpu(request, launch.rank);
  const Placement placement =
      plan_rank(launch, sys::look_at_machine(), request.threads, gpu.pci_bus_id);
  if (!gpu.pci_bus_id.empty() && !request.share_gpu) sys::require_own_gpus(placement.gpus);
  const sys::Plan& plan = placement.plan;
  const sys::BindingReport report = sys::bind_process(plan);
  judge(report, launch.rank, request.require_binding);

  Compute compute;
  const auto reports = launch.control->gather(sys::to_json(report, launch.rank), "binding report");
  compute.binding_report = fmt::format("[\n{}\n]\n", fmt::join(reports, ",\n"));
  compute.bind_worker = [cpus = plan.loader] {
    if (!cpus.empty()) sys::bind_thread(cpus);
  };
  compute.spare_cores = plan.loader_shares_cores ? 0 : plan.loader.size();
  compute.backend =
      request.backend == "cuda" ? make_cuda_backend(gpu.ordinal) : make_cpu_backend({plan.compute});
  return compute;
}

std::unique_ptr<comm::Communicator> connect(Launch& launch, Compute& compute,
                                            const comm::NcclSpec& spec) {
  if (compute.backend->name() == "cuda")
    return comm::make_nccl_communicator(*launch.world, *launch.control, spec);
  return launch.world->make_communicator(spec.deadline_s);
}

}  // namespace lockstep::app
