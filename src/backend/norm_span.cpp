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
  const comm::Waiting waiting(group_->activity);
  const double began_ms = now_ms();
  for (device::Idle idle; !arrived->done();) idle();
  waited_ms_ += now_ms() - began_ms;
}

std::unique_ptr<NormSpan> make_norm_span(std::size_t ranks, const Backend& backend,
                                         comm::Communicator& replicas) {
  if (ranks == 1) return nullptr;
  require(backend.shares_norms(),
          fmt::format("model-options.norm-ranks = {}: the {} backend does not share batch norm's "
                      "statistics between ranks, the cpu backend does; leave it out",
                      ranks, backend.name()));
  check(static_cast<std::size_t>(replicas.world()) % ranks == 0,
        "spans of batch norm must divide the ranks");
  const int span = replicas.rank() / static_cast<int>(ranks);
  return std::make_unique<NormSpan>(replicas.split(span, replicas.rank(), "batch norm's span"));
}

}  // namespace lockstep::backend
