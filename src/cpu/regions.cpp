#include <algorithm>

#include "cpu/convolution.hpp"
#include "cpu/program.hpp"

namespace lockstep::cpu {

namespace {

// A lane's second-level cache is 1 or 2 MB on the machines that train on CPUs. A fixed number, so
// that the cut, and with it the order of the sums, does not depend on the machine.
constexpr std::size_t cache_bytes = std::size_t{1} << 20;

struct Weight {
  std::size_t row_bytes = 0;     // activations that one row takes through the region
  std::size_t shared_bytes = 0;  // weights that every chunk reads again
};

Weight weigh(const nn::Network& network, const std::vector<Unit>& units,
             const std::vector<std::size_t>& region, Storage storage) {
  Weight weight;
  for (const std::size_t u : region) {
    const Unit& unit = units[u];
    if (unit.kind == UnitKind::conv) {
      const ConvGeometry g = ConvGeometry::of(network, unit.node, storage);
      weight.row_bytes += g.source_bytes() + g.destination_bytes();
      weight.shared_bytes += g.weight_count() * bytes_of(storage);
    } else {
      weight.row_bytes += network.nodes[unit.node].shape.count() * bytes_of(storage);
    }
  }
  return weight;
}

// Large weights want large chunks: what is read again for each chunk should not outweigh what the
// chunk brings.
std::size_t rows_of_chunk(const Weight& weight) {
  const std::size_t budget = std::max(cache_bytes, 2 * weight.shared_bytes);
  return std::max<std::size_t>(1, budget / std::max<std::size_t>(1, weight.row_bytes));
}

void cut(Region& region, std::size_t number, std::size_t batch, std::size_t lanes,
         std::size_t chunk_rows) {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t begin = batch * lane / lanes, end = batch * (lane + 1) / lanes;
    const std::size_t rows = end - begin, pieces = (rows + chunk_rows - 1) / chunk_rows;
    std::vector<Chunk> chunks;
    for (std::size_t p = 0; p < pieces; ++p) {  // pieces of equal size, as near as can be
      const std::size_t first = begin + rows * p / pieces, last = begin + rows * (p + 1) / pieces;
      chunks.push_back({number, lane, region.chunks++, first, last - first, p == 0});
      region.chunk_rows = std::max(region.chunk_rows, last - first);
    }
    region.lanes.push_back(std::move(chunks));
  }
}

}  // namespace

std::vector<Region> make_regions(const nn::Network& network, const std::vector<Unit>& units,
                                 std::size_t batch, std::size_t lanes, Storage storage) {
  std::vector<Region> result;
  for (const std::vector<std::size_t>& members : regions(units)) {
    Region region;
    region.units = members;
    bool head = false;
    for (const std::size_t u : members) {
      head = head || units[u].kind == UnitKind::head;
      if (units[u].kind == UnitKind::conv || units[u].kind == UnitKind::head)
        region.name += (region.name.empty() ? "" : "+") + units[u].name;
    }
    if (region.name.empty()) region.name = units[members.back()].name;
    cut(region, result.size(), batch, lanes,
        head ? batch : rows_of_chunk(weigh(network, units, members, storage)));
    result.push_back(std::move(region));
  }
  return result;
}

}  // namespace lockstep::cpu
