#include "lockstep/backend/placement.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

namespace {

class Choice {
 public:
  Choice(const ProgramSpec& spec, const Segments& segments, const MemoryBounds& bounds)
      : spec_(spec), segments_(segments), bounds_(bounds) {}

  Placement run() const {
    const Recompute& how = spec_.recompute;
    if (!spec_.training || how.mode == Recompute::Mode::none)
      return segments_.place({{0, segments_.count, false}});
    const Chain chain(segments_.count, segments_.cost);
    if (how.mode == Recompute::Mode::automatic) return keep_limit(chain);
    require(how.segments <= chain.segments(),
            fmt::format("recompute = {}: {} can be cut into at most {} segments", how.segments,
                        segments_.network, chain.segments()));
    return segments_.place(chain.least_memory(how.segments));
  }

 private:
  Placement keep_limit(const Chain& chain) const {
    const std::size_t limit = spec_.recompute.memory_limit;
    require(limit > 0, "recompute = auto needs memory-limit: the bytes that a step may take");
    const std::size_t others = bounds_.fixed + spec_.recompute.reserved;
    const std::size_t between_steps = spec_.recompute.between_steps;
    const std::size_t budget = limit - std::min(limit, others);
    // Programs for fewer rows use the block of the first one.
    if (bounds_.available > 0 && bounds_.available < budget)
      if (auto placement = within(chain, bounds_.available)) return std::move(*placement);
    if (between_steps <= budget)
      if (auto placement = within(chain, budget)) return std::move(*placement);
    Placement least = segments_.place(chain.least_memory());
    const std::size_t smallest = std::max(least.total(), between_steps);
    require(
        smallest <= budget,
        fmt::format("memory-limit = {} is too small: a micro-batch of {} rows of {} in {} needs "
                    "at least {} bytes, with all that can be made again",
                    limit, spec_.batch, segments_.network, to_string(spec_.precision),
                    smallest + others));
    return least;
  }

  /// Gaps between buffers add to the bytes that are alive, so that the limit for those is lowered
  /// until the whole block keeps the limit.
  std::optional<Placement> within(const Chain& chain, std::size_t budget) const {
    std::size_t limit = budget;
    while (const auto spans = chain.fewest_operations(limit)) {
      Placement placement = segments_.place(*spans);
      if (placement.total() <= budget) return placement;
      limit = std::min(limit, chain.peak(*spans)) - 1;
    }
    return std::nullopt;
  }

  const ProgramSpec& spec_;
  const Segments& segments_;
  const MemoryBounds& bounds_;
};

}  // namespace

Placement::Placement(const std::vector<PlannedBuffer>& buffers, std::size_t slots,
                     std::size_t alignment)
    : slots_(slots), shared_(alignment), slot_(alignment) {
  for (const PlannedBuffer& buffer : buffers) {
    Place first, again;
    if (buffer.lives) {
      const Life& life = buffer.lives->life;
      first.in_slot = slots > 1 && buffer.in_slot;
      first.buffer = (first.in_slot ? slot_ : shared_).add(buffer.bytes, life.first, life.last);
      again = first;
      if (const auto& later = buffer.lives->again)
        again = {false, shared_.add(buffer.bytes, later->first, later->last)};
    }
    places_[0].push_back(first);
    places_[1].push_back(again);
  }
  shared_.place();
  slot_.place();
}

std::size_t Placement::offset(std::size_t buffer, bool after_forward, std::size_t slot) const {
  const Place& place = places_[after_forward][buffer];
  return place.in_slot ? shared_.total() + slot * slot_.total() + slot_.offset(place.buffer)
                       : shared_.offset(place.buffer);
}

Placement choose_placement(const ProgramSpec& spec, const Segments& segments,
                           const MemoryBounds& bounds) {
  return Choice(spec, segments, bounds).run();
}

}  // namespace lockstep::backend
