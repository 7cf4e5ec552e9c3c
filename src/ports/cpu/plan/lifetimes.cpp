#include "ports/cpu/plan/lifetimes.hpp"

#include <algorithm>

#include "lockstep/backend/placement.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/partition.hpp"
#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

namespace {

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

namespace {

backend::LifetimesSpec spec_of(const nn::Network& network, const std::vector<Unit>& units,
                               const backend::ProgramSpec& program) {
  backend::LifetimesSpec spec{.parts = regions(units).size(),
                              .operations = forward_operations(network, units),
                              .cuts = cut_units(network, units),
                              .begins = {},
                              .cut_is_next = true,
                              .training = program.training,
                              .weights_later = program.weights_later > 0,
                              .alignment = buffer_alignment};
  for (const std::size_t cut : spec.cuts) spec.begins.push_back(units[cut].level);
  return spec;
}

}  // namespace

Lifetimes::Lifetimes(const nn::Network& network, const std::vector<Unit>& units,
                     const std::vector<BufferRequest>& requests, const backend::ProgramSpec& spec)
    : backend::Lifetimes(spec_of(network, units, spec)), units_(units), requests_(requests) {
  choose({{0, segments(), false}});
}

std::optional<std::size_t> Lifetimes::cut_in(std::size_t region) const {
  for (const std::size_t cut : spec().cuts)
    if (units_[cut].level == region && ends_span(cut)) return cut;
  return std::nullopt;
}

std::size_t Lifetimes::span_of(std::size_t unit) const {
  if (!units_[unit].in_region) unit = units_[unit].readers[0];  // which runs it
  return span_with(unit, units_[unit].level);
}

std::vector<bool> Lifetimes::needed_again(std::size_t, std::size_t end) const {
  return std::vector<bool>(end, true);
}

/// The last region that reads the value in forward. Readers that are not kept are made again by
/// their own readers.
std::size_t Lifetimes::last_read(std::size_t unit) const {
  std::size_t last = units_[unit].level;
  for (const std::size_t reader : units_[unit].readers) {
    last = std::max(last, units_[reader].level);
    if (!kept(reader) && units_[reader].kind == UnitKind::point)
      last = std::max(last, last_read(reader));
    if (units_[reader].in_place && units_[reader].skip == unit)
      last = std::max(last, last_read(reader));
  }
  return last;
}

bool Lifetimes::made_again(std::size_t unit) const {
  const backend::Span& its = span(span_of(unit));
  return its.again && units_[unit].level < begin_of(its.last);  // what ends it is kept: the cut
}

Lives Lifetimes::value_lives(std::size_t unit) const {
  const std::size_t made = units_[unit].level;
  const Life forward{made, last_read(unit)};
  if (!spec().training) return {forward, std::nullopt};
  if (!made_again(unit)) return {{made, weights_at(made)}, std::nullopt};
  return {forward, Life{again_at(made), backward_at(made)}};
}

/// Nothing for the value of a unit that is not kept.
std::optional<Lives> Lifetimes::lives(const BufferRequest& request) const {
  switch (request.kind) {
    case BufferRequest::Kind::value:
      if (!kept(request.unit) && units_[request.unit].kind == UnitKind::point) return std::nullopt;
      return value_lives(request.unit);
    case BufferRequest::Kind::forward: {
      Lives lives{{request.first, request.last}, std::nullopt};
      if (const std::size_t step = again_at(request.first)) lives.again = Life{step, step};
      return lives;
    }
    case BufferRequest::Kind::backward:
      return Lives{{backward_at(request.first), backward_at(request.last)}, std::nullopt};
    case BufferRequest::Kind::weights:
      return Lives{{weights_at(request.first), weights_at(request.first)}, std::nullopt};
    case BufferRequest::Kind::late:
      return Lives{{backward_at(request.first), weights_at(request.first)}, std::nullopt};
  }
  throw Error("a buffer of no kind");
}

std::vector<backend::PlannedBuffer> Lifetimes::requested() const {
  std::vector<backend::PlannedBuffer> buffers;
  for (const BufferRequest& request : requests_)
    buffers.push_back({.bytes = request.bytes, .lives = lives(request), .unit = request.unit});
  return buffers;
}

namespace {

/// A value, and those that replace it one after the other in the same place.
struct Chain {
  std::size_t last_reader = 0;
  bool leaves = false;  // the region
  std::size_t buffer = 0;
};

}  // namespace

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
  std::vector<backend::MemoryPlanner> scratch(c.regions.size(),
                                              backend::MemoryPlanner(buffer_alignment));
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
