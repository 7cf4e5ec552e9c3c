#include "ports/cpu/memory.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::cpu {

namespace {

using backend::Chain;
using backend::Recompute;
using backend::Span;
using Spans = std::vector<Span>;

/// Operations of each unit's forward; a convolution's include its batch norm's sums only when it
/// runs for the first time.
std::vector<double> forward_operations(const nn::Network& network, const std::vector<Unit>& units) {
  std::vector<double> operations;
  for (const Unit& unit : units) {
    double sum = nn::cost_of(network, unit.node, {}).forward.operations;
    if (unit.kind == UnitKind::point)
      sum += 3 * static_cast<double>(network.nodes[unit.node].shape.count());
    operations.push_back(sum);
  }
  return operations;
}

class Choice {
 public:
  Choice(const nn::Network& network, const backend::ProgramSpec& spec,
         const std::vector<Unit>& units, const std::vector<BufferRequest>& requests,
         const MemoryBounds& bounds, Lifetimes& lifetimes)
      : network_(network),
        spec_(spec),
        requests_(requests),
        bounds_(bounds),
        lifetimes_(lifetimes),
        operations_(forward_operations(network, units)) {}

  Placement run() {
    const Recompute& how = spec_.recompute;
    if (!spec_.training || how.mode == Recompute::Mode::none)
      return place({{0, lifetimes_.segments(), false}});
    const Chain chain(lifetimes_.segments(), [&](const Span& span) {
      return lifetimes_.cost(span, requests_, operations_);
    });
    if (how.mode == Recompute::Mode::automatic) return keep_limit(chain);
    require(how.segments <= chain.segments(),
            fmt::format("recompute = {}: {} can be cut into at most {} segments", how.segments,
                        network_.name, chain.segments()));
    return place(chain.least_memory(how.segments));
  }

 private:
  Placement place(const Spans& spans) {
    lifetimes_.choose(spans);
    return Placement(requests_, lifetimes_, spec_.slots);
  }

  Placement keep_limit(const Chain& chain) {
    const std::size_t limit = spec_.recompute.memory_limit;
    require(limit > 0, "recompute = auto needs memory-limit on a CPU");
    const std::size_t others = bounds_.fixed + spec_.recompute.reserved;
    const std::size_t between_steps = spec_.recompute.between_steps;
    const std::size_t budget = limit - std::min(limit, others);
    // Programs for fewer rows use the block of the first one.
    if (bounds_.available > 0 && bounds_.available < budget)
      if (auto placement = within(chain, bounds_.available)) return std::move(*placement);
    if (between_steps <= budget)
      if (auto placement = within(chain, budget)) return std::move(*placement);
    Placement least = place(chain.least_memory());
    const std::size_t smallest = std::max(least.total(), between_steps);
    require(smallest <= budget,
            fmt::format(
                "memory-limit = {} is too small: a micro-batch of {} rows of {} in {} needs "
                "at least {} bytes, with all that can be made again",
                limit, spec_.batch, network_.name, to_string(spec_.precision), smallest + others));
    return least;
  }

  /// Gaps between buffers add to the bytes that are alive, so that the limit for those is lowered
  /// until the whole block keeps the limit.
  std::optional<Placement> within(const Chain& chain, std::size_t budget) {
    std::size_t limit = budget;
    while (const auto spans = chain.fewest_operations(limit)) {
      Placement placement = place(*spans);
      if (placement.total() <= budget) return placement;
      limit = std::min(limit, chain.peak(*spans)) - 1;
    }
    return std::nullopt;
  }

  const nn::Network& network_;
  const backend::ProgramSpec& spec_;
  const std::vector<BufferRequest>& requests_;
  const MemoryBounds& bounds_;
  Lifetimes& lifetimes_;
  std::vector<double> operations_;
};

}  // namespace

Placement::Placement(const std::vector<BufferRequest>& requests, const Lifetimes& lifetimes,
                     std::size_t slots)
    : slots_(slots) {
  for (const BufferRequest& request : requests) {
    const std::optional<Lives> lives = lifetimes.lives(request);
    Place first, again;
    if (lives) {
      first.in_slot = slots > 1 && lifetimes.outlives_forward(lives->life);
      first.buffer =
          (first.in_slot ? slot_ : shared_).add(request.bytes, lives->life.first, lives->life.last);
      again = first;
      if (lives->again)
        again.buffer = shared_.add(request.bytes, lives->again->first, lives->again->last);
    }
    places_[0].push_back(first);
    places_[1].push_back(again);
  }
  shared_.place();
  slot_.place();
}

std::size_t Placement::offset(std::size_t request, bool after_forward, std::size_t slot) const {
  const Place& place = places_[after_forward][request];
  return place.in_slot ? shared_.total() + slot * slot_.total() + slot_.offset(place.buffer)
                       : shared_.offset(place.buffer);
}

std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units) {
  const std::vector<std::size_t> points = nn::cut_points(network);
  std::vector<std::size_t> cuts;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const Unit& unit = units[u];
    const bool has_place =
        unit.in_region && (unit.kind == UnitKind::point || unit.kind == UnitKind::pool);
    if (has_place && unit.level > 0 &&
        std::binary_search(points.begin(), points.end(), unit.node) &&
        (cuts.empty() || units[cuts.back()].level < unit.level))
      cuts.push_back(u);
  }
  return cuts;
}

Placement place_buffers(const nn::Network& network, const backend::ProgramSpec& spec,
                        const std::vector<Unit>& units, const std::vector<BufferRequest>& requests,
                        const MemoryBounds& bounds, Lifetimes& lifetimes) {
  return Choice(network, spec, units, requests, bounds, lifetimes).run();
}

double share_made_again(const nn::Network& network, const std::vector<Unit>& units,
                        const Lifetimes& lifetimes) {
  const std::vector<double> operations = forward_operations(network, units);
  double all = 0, again = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    all += operations[u];
    if (lifetimes.made_again(u)) again += operations[u];
  }
  return again / all;
}

}  // namespace lockstep::cpu
