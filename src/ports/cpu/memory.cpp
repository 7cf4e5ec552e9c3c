#include "ports/cpu/memory.hpp"

#include <algorithm>

#include "lockstep/backend/memory_plan.hpp"
#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/partition.hpp"
#include "ports/cpu/runner.hpp"

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

/// A value, and those that replace it one after the other in the same place.
struct Chain {
  std::size_t last_reader = 0;
  bool leaves = false;  // the region
  std::size_t buffer = 0;
};

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

std::vector<ValuePlace> place_values(Context& c) {
  std::vector<std::size_t> first(c.units.size());  // of each unit's chain
  std::vector<Chain> chains(c.units.size());
  for (std::size_t u = 0; u < c.units.size(); ++u) {
    const Unit& unit = c.units[u];
    first[u] = unit.in_place ? first[*unit.skip] : u;
    Chain& chain = chains[first[u]];
    for (const std::size_t reader : unit.readers) {
      chain.last_reader = std::max(chain.last_reader, reader);
      chain.leaves = chain.leaves || c.units[reader].level != c.units[first[u]].level;
    }
  }
  std::vector<backend::MemoryPlanner> scratch(c.regions.size(), backend::MemoryPlanner(alignment));
  const auto has_place = [&](std::size_t u) {
    return c.units[u].kind == UnitKind::folded || c.units[u].kind == UnitKind::pool;
  };
  for (std::size_t u = 0; u < c.units.size(); ++u) {
    if (first[u] != u || !has_place(u)) continue;
    const Region& region = c.regions[c.units[u].level];
    const std::size_t image_bytes =
        c.network.nodes[c.units[u].node].shape.count() * bytes_of(c.storage);
    chains[u].buffer = chains[u].leaves ? c.value_buffer(image_bytes * c.spec.batch, u)
                                        : scratch[c.units[u].level].add(
                                              image_bytes * region.chunk_stripes / region.stripes,
                                              u, chains[u].last_reader);
  }
  std::vector<std::size_t> begin(c.regions.size());
  for (std::size_t r = 0; r < c.regions.size(); ++r) {
    scratch[r].place();
    begin[r] = c.fixed_scratch(r, scratch[r].total());
  }
  std::vector<ValuePlace> places(c.units.size());
  for (std::size_t u = 0; u < c.units.size(); ++u) {
    if (!has_place(u)) continue;
    const Chain& chain = chains[first[u]];
    const std::size_t level = c.units[first[u]].level;
    places[u] = chain.leaves ? ValuePlace{false, chain.buffer}
                             : ValuePlace{true, begin[level] + scratch[level].offset(chain.buffer)};
  }
  return places;
}

}  // namespace lockstep::cpu
