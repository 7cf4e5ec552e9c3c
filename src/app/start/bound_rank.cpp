// Why binding comes before threads. Threads inherit the mask and pages are placed by first touch;
// binding later repairs neither.
#include "app/start/bound_rank.hpp"

#include <cstring>

#include "lockstep/cluster/topology/bind.hpp"

namespace lockstep::app {

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
