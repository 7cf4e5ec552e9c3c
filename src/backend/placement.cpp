#include "lockstep/backend/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/backend/lifetimes.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {

std::size_t MemoryPlanner::add(std::size_t bytes, std::size_t first, std::size_t last) {
  check(first <= last, "a buffer must be written before it is read");
  buffers_.push_back({.bytes = (bytes + alignment_ - 1) / alignment_ * alignment_,
                      .first = first,
                      .last = last,
                      .offset = 0});
  sum_ += buffers_.back().bytes;
  return buffers_.size() - 1;
}

void MemoryPlanner::place() {
  std::vector<std::size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers_[a].bytes > buffers_[b].bytes;
  });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    Buffer& buffer = buffers_[i];
    std::size_t at = 0;
    for (const std::size_t other : placed) {
      const Buffer& o = buffers_[other];
      if (o.last < buffer.first || buffer.last < o.first) continue;  // never alive at the same time
      if (at + buffer.bytes <= o.offset) break;
      at = std::max(at, o.offset + o.bytes);
    }
    buffer.offset = at;
    total_ = std::max(total_, at + buffer.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return buffers_[a].offset < buffers_[b].offset;
                                   }),
                  i);
  }
}

namespace {

class Choice {
 public:
  Choice(const ProgramSpec& spec, const std::string& name, Lifetimes& lifetimes,
         const MemoryBounds& bounds)
      : spec_(spec), name_(name), lifetimes_(lifetimes), bounds_(bounds) {}

  Placement run() const {
    const Recompute& how = spec_.recompute;
    if (!spec_.training || how.mode == Recompute::Mode::none)
      return place({{0, lifetimes_.segments(), false}});
    const Chain chain(lifetimes_.segments(),
                      [&](const Span& span) { return lifetimes_.cost(span); });
    if (how.mode == Recompute::Mode::automatic) return keep_limit(chain);
    if (how.mode == Recompute::Mode::least) return smallest_of(chain);
    require(how.segments <= chain.segments(),
            fmt::format("recompute = {}: {} can be cut into at most {} segments", how.segments,
                        name_, chain.segments()));
    return place(chain.least_memory(how.segments));
  }

 private:
  Placement place(const std::vector<Span>& spans) const {
    lifetimes_.choose(spans);
    return lifetimes_.place(spec_.slots, spec_.weights_later);
  }

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
    Placement least = smallest_of(chain);
    const std::size_t smallest = std::max(least.total(), between_steps);
    require(
        smallest <= budget,
        fmt::format("memory-limit = {} is too small: a micro-batch of {} rows of {} in {} needs "
                    "at least {} bytes, with all that can be made again",
                    limit, spec_.batch, name_, to_string(spec_.precision), smallest + others));
    return least;
  }

  /// The bytes that are alive do not say how buffers fit between each other: so what any number of
  /// segments reaches is tried, too.
  Placement smallest_of(const Chain& chain) const {
    Placement best = place(chain.least_memory());
    for (std::size_t segments = 1; segments <= chain.segments(); ++segments) {
      Placement other = place(chain.least_memory(segments));
      if (other.total() < best.total()) best = std::move(other);
    }
    return best;
  }

  /// Gaps between buffers add to the bytes that are alive, so that the limit for those is lowered
  /// until the whole block keeps the limit.
  std::optional<Placement> within(const Chain& chain, std::size_t budget) const {
    std::size_t limit = budget;
    while (const auto spans = chain.fewest_operations(limit)) {
      Placement placement = place(*spans);
      if (placement.total() <= budget) return placement;
      limit = std::min(limit, chain.peak(*spans)) - 1;
    }
    return std::nullopt;
  }

  const ProgramSpec& spec_;
  const std::string& name_;
  Lifetimes& lifetimes_;
  const MemoryBounds& bounds_;
};

}  // namespace

Placement::Placement(const std::vector<PlannedBuffer>& buffers, const Flying& flying,
                     std::size_t alignment)
    : flying_(flying), shared_(alignment), slot_(alignment), late_(alignment) {
  for (const PlannedBuffer& buffer : buffers) {
    BufferPlace first, again;
    if (buffer.lives) {
      const Life& life = buffer.lives->life;
      if (flying.slots > 1 && buffer.in_slot) first.where = Where::slot;
      if (flying.slots > 1 && buffer.is_late) first.where = Where::late;
      first.buffer = planner(first.where).add(buffer.bytes, life.first, life.last);
      again = first;
      if (const auto& later = buffer.lives->again)
        again = {Where::shared, shared_.add(buffer.bytes, later->first, later->last)};
    }
    places_[0].push_back(first);
    places_[1].push_back(again);
  }
  for (MemoryPlanner* one : {&shared_, &slot_, &late_}) one->place();
}

MemoryPlanner& Placement::planner(Where where) {
  if (where == Where::shared) return shared_;
  return where == Where::slot ? slot_ : late_;
}

Placement::Offsets Placement::offsets() const {
  Offsets offsets(flying_.slots);
  for (std::size_t slot = 0; slot < flying_.slots; ++slot)
    for (const bool after_forward : {false, true})
      for (const BufferPlace& place : places_[after_forward])
        offsets[slot][after_forward].push_back(
            place.where == Where::slot
                ? shared_.total() + slot * slot_.total() + slot_.offset(place.buffer)
            : place.where == Where::shared ? shared_.offset(place.buffer)
                                           : 0);
  return offsets;
}

std::vector<std::vector<std::size_t>> Placement::late_offsets() const {
  const std::size_t before = shared_.total() + flying_.slots * slot_.total();
  std::vector<std::vector<std::size_t>> offsets(flying_.later);
  for (std::size_t late = 0; late < flying_.later; ++late)
    for (const BufferPlace& place : places_[1])
      offsets[late].push_back(place.where == Where::late
                                  ? before + late * late_.total() + late_.offset(place.buffer)
                              : place.where == Where::shared ? shared_.offset(place.buffer)
                                                             : 0);
  return offsets;
}

Placement choose_placement(const ProgramSpec& spec, const std::string& name, Lifetimes& lifetimes,
                           const MemoryBounds& bounds) {
  return Choice(spec, name, lifetimes, bounds).run();
}

}  // namespace lockstep::backend
