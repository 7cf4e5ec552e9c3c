#include "lockstep/backend/norm_span.hpp"

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/idle.hpp"

namespace lockstep::backend {

void NormSpan::gather(std::span<float> chunks, std::string_view name) {
  if (ranks() == 1) return;
  group_->all_gather(comm::elements(chunks.data(), chunks.size()), name, group_->network());
  // Buckets of gradients may be in flight, too, and the step need not wait for them here.
  const std::unique_ptr<device::Event> arrived = group_->network().record_newest();
  wait([&] { return arrived->done(); });
}

void NormSpan::gather(std::span<float> chunks, std::string_view name, device::Stream& compute) {
  if (ranks() == 1) return;
  device::Stream& network = group_->network();
  network.wait(*compute.record());  // this rank's chunk is written before it is sent
  group_->all_gather(comm::elements(chunks.data(), chunks.size()), name, network);
  compute.wait(*network.record());  // all chunks are there before they are merged
}

void NormSpan::wait(const std::function<bool()>& arrived) {
  if (arrived()) return;
  const comm::Waiting waiting(group_->activity);
  const double began_ms = now_ms();
  for (device::Idle idle; !arrived();) idle();
  waited_ms_ += now_ms() - began_ms;
}

std::unique_ptr<comm::Communicator> consecutive(std::size_t ranks, comm::Communicator& all,
                                                std::string_view name) {
  check(static_cast<std::size_t>(all.world()) % ranks == 0,
        fmt::format("{}: {} must divide the ranks", name, ranks));
  return all.split(all.rank() / static_cast<int>(ranks), all.rank(), name);
}

std::unique_ptr<NormSpan> make_norm_span(std::size_t ranks, const Backend& backend,
                                         comm::Communicator& replicas) {
  if (ranks == 1) return nullptr;
  require(backend.shares_norms(),
          fmt::format("model-options.norm-ranks = {}: the {} backend does not share batch norm's "
                      "statistics between ranks, the cpu and cuda backends do; leave it out",
                      ranks, backend.name()));
  return std::make_unique<NormSpan>(consecutive(ranks, replicas, "batch norm's span"));
}

}  // namespace lockstep::backend
