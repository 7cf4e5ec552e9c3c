#include "compute.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/sys/binding_report.hpp"
#include "placement.hpp"

namespace lockstep::app {
namespace {

int my_cuda_device(const sys::RankInfo& rank) {
  const int devices = cuda_device_count();
  if (devices == 1) return 0;  // the launcher has chosen for each rank
  require(rank.local_rank < devices || devices == 0,
          fmt::format("{} ranks on {} share {} GPUs: start at most one rank for each GPU",
                      rank.local_size, rank.host, devices));
  return rank.local_rank;
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

Compute prepare_compute(Launch& launch, const ComputeRequest& request) {
  const sys::Plan plan = plan_rank(launch, sys::look_at_machine(), request.threads);
  const sys::BindingReport report = sys::bind_process(plan);
  judge(report, launch.rank, request.require_binding);

  Compute compute;
  const auto reports = launch.control->gather(sys::to_json(report, launch.rank), "binding report");
  compute.binding_report = fmt::format("[\n{}\n]\n", fmt::join(reports, ",\n"));
  compute.bind_worker = [cpus = plan.loader] {
    if (!cpus.empty()) sys::bind_thread(cpus);
  };
  compute.spare_cores = plan.loader_shares_cores ? 0 : plan.loader.size();
  compute.backend = request.backend == "cuda" ? make_cuda_backend(my_cuda_device(launch.rank))
                                              : make_cpu_backend({plan.compute});
  return compute;
}

}  // namespace lockstep::app
