#include "ports/cpu/memory.hpp"

#include <algorithm>

#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::cpu {

namespace {

constexpr std::size_t alignment = 64;  // bytes: a cache line

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

}  // namespace

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

backend::Placement place_buffers(const nn::Network& network, const backend::ProgramSpec& spec,
                                 const std::vector<Unit>& units,
                                 const std::vector<BufferRequest>& requests,
                                 const backend::MemoryBounds& bounds, Lifetimes& lifetimes) {
  const std::vector<double> operations = forward_operations(network, units);
  backend::Segments segments;
  segments.network = network.name;
  segments.count = lifetimes.segments();
  segments.cost = [&](const backend::Span& span) {
    return lifetimes.cost(span, requests, operations);
  };
  segments.place = [&](const std::vector<backend::Span>& spans) {
    lifetimes.choose(spans);
    std::vector<backend::PlannedBuffer> buffers;
    for (const BufferRequest& request : requests) {
      const auto lives = lifetimes.lives(request);
      buffers.push_back({request.bytes, lives, lives && lifetimes.outlives_forward(lives->life)});
    }
    return backend::Placement(buffers, spec.slots, alignment);
  };
  return backend::choose_placement(spec, segments, bounds);
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
