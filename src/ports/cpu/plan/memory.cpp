#include "ports/cpu/plan/memory.hpp"

#include <algorithm>

#include "lockstep/backend/placement.hpp"
#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

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
