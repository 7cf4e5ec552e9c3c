#include "app/binding.hpp"

#include <cstring>

namespace lockstep::app {

BoundRank bind_rank(const sys::Plan& plan, std::optional<int> cuda_device) {
  BoundRank rank;
  rank.report = sys::bind_process(plan);
  rank.backend = cuda_device ? make_cuda_backend(*cuda_device) : make_cpu_backend({plan.compute});
  if (!cuda_device) sys::verify_threads(rank.report);
  Device& device = rank.backend->device();
  const PinnedBuffer sample = device.allocate_pinned(std::size_t{8} << 20);
  std::memset(sample.data(), 1, sample.size());
  sys::verify_pages(rank.report, "pinned", {{sample.data(), sample.size()}});
  rank.report.upload_bytes_per_s = device.upload_rate(sample);
  return rank;
}

}  // namespace lockstep::app
