#include <algorithm>
#include <numeric>

#include "ports/cpu/program.hpp"
#include "ports/cpu/units/conv/convolution.hpp"

namespace lockstep::cpu {

namespace {

bool has_conv(const Unit& unit) {
  return unit.kind == UnitKind::conv || unit.kind == UnitKind::folded;
}

struct Weight {
  std::size_t image_bytes = 0;   // activations that one image takes through the region
  std::size_t shared_bytes = 0;  // weights that every chunk reads again
};

Weight weigh(const nn::Network& network, const std::vector<Unit>& units,
             const std::vector<std::size_t>& region, Storage storage) {
  Weight weight;
  for (const std::size_t u : region) {
    const Unit& unit = units[u];
    if (has_conv(unit)) {
      const ConvGeometry g = ConvGeometry::of(network, unit.node, storage);
      weight.image_bytes += g.source_bytes() + g.destination_bytes();
      weight.shared_bytes += g.weight_count() * bytes_of(storage);
    } else {
      weight.image_bytes += network.nodes[unit.node].shape.count() * bytes_of(storage);
    }
  }
  return weight;
}

// Large weights need large chunks: the weights that are read again for each chunk should not
// outweigh the chunk itself.
std::size_t chunk_budget(const Weight& weight, std::size_t chunk_bytes) {
  return std::max(chunk_bytes, 2 * weight.shared_bytes);
}

/// True when each pixel depends on that pixel alone, in the unit and in the readers that give it a
/// gradient.
bool pointwise(const nn::Network& network, const std::vector<Unit>& units, const Unit& unit) {
  if (unit.kind == UnitKind::receive || unit.kind == UnitKind::send) return true;
  const nn::Node& node = network.nodes[unit.node];
  const auto needs_images = [&](std::size_t r) {
    return units[r].pad || units[r].kind == UnitKind::pool || units[r].kind == UnitKind::head;
  };
  return unit.input && !unit.pad &&
         std::none_of(unit.readers.begin(), unit.readers.end(), needs_images) &&
         (unit.kind == UnitKind::point ||
          (has_conv(unit) && node.kernel == 1 && node.padding == 0));
}

/// The most stripes that an image may be cut into: a common divisor of the heights of all values in
/// the region, or 1 where a unit needs neighbouring pixels.
std::size_t most_stripes(const nn::Network& network, const std::vector<Unit>& units,
                         const std::vector<std::size_t>& region) {
  std::size_t divisor = 0;
  for (const std::size_t u : region) {
    const Unit& unit = units[u];
    if (!pointwise(network, units, unit)) return 1;
    const nn::Node& node = network.nodes[unit.node];
    divisor = std::gcd(divisor, node.shape.height);
    if (!node.inputs.empty())
      divisor = std::gcd(divisor, network.nodes[node.inputs[0]].shape.height);
  }
  return divisor;
}

/// The fewest stripes so that one fits the budget; the most possible where none fits.
std::size_t stripes_of_image(std::size_t image_bytes, std::size_t budget, std::size_t most) {
  for (std::size_t stripes = 1; stripes < most; ++stripes)
    if (most % stripes == 0 && image_bytes / stripes <= budget) return stripes;
  return most;
}

void cut(Region& region, std::size_t number, std::size_t batch, std::size_t lanes,
         std::size_t chunk_stripes) {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t begin = batch * lane / lanes * region.stripes,
                      end = batch * (lane + 1) / lanes * region.stripes;
    const std::size_t stripes = end - begin, pieces = (stripes + chunk_stripes - 1) / chunk_stripes;
    std::vector<Chunk> chunks;
    for (std::size_t p = 0; p < pieces; ++p) {  // pieces as equal as possible
      const std::size_t first = begin + stripes * p / pieces,
                        last = begin + stripes * (p + 1) / pieces;
      chunks.push_back(
          {number, lane, region.chunks++, first, last - first, region.stripes, p == 0});
      region.chunk_stripes = std::max(region.chunk_stripes, last - first);
    }
    region.lanes.push_back(std::move(chunks));
  }
}

std::string name_of(const std::vector<Unit>& units, const std::vector<std::size_t>& members) {
  std::string name;
  for (const std::size_t u : members)
    if (has_conv(units[u]) || units[u].kind == UnitKind::head)
      name += (name.empty() ? "" : "+") + units[u].name;
  return name.empty() ? units[members.back()].name : name;
}

}  // namespace

bool can_share_rows(const nn::Network& network, const backend::ProgramSpec& spec) {
  return !spec.training &&
         std::none_of(network.nodes.begin(), network.nodes.end(), [](const nn::Node& node) {
           return node.op == nn::Op::receive || node.op == nn::Op::send ||
                  node.padding >= node.kernel;
         });
}

std::vector<Region> share_rows(const std::vector<Unit>& units, std::size_t batch,
                               std::size_t lanes) {
  std::vector<Region> result;
  for (const std::vector<std::size_t>& members : regions(units)) {
    Region region;
    region.units = members;
    region.name = name_of(units, members);
    region.chunk_stripes = batch;
    for (std::size_t lane = 0; lane < lanes; ++lane)
      region.lanes.push_back({{result.size(), lane, region.chunks++, 0, batch, 1, true}});
    result.push_back(std::move(region));
  }
  return result;
}

std::vector<Region> make_regions(const nn::Network& network, const std::vector<Unit>& units,
                                 std::size_t batch, std::size_t lanes, Storage storage,
                                 std::size_t chunk_bytes) {
  std::vector<Region> result;
  for (const std::vector<std::size_t>& members : regions(units)) {
    Region region;
    region.units = members;
    region.name = name_of(units, members);
    const Weight weight = weigh(network, units, members, storage);
    const std::size_t budget = chunk_budget(weight, chunk_bytes);
    region.stripes =
        stripes_of_image(weight.image_bytes, budget, most_stripes(network, units, members));
    const std::size_t fit = budget * region.stripes / std::max<std::size_t>(1, weight.image_bytes);
    const bool head = units[members.back()].kind == UnitKind::head;
    cut(region, result.size(), batch, lanes, head ? batch : std::max<std::size_t>(1, fit));
    result.push_back(std::move(region));
  }
  return result;
}

}  // namespace lockstep::cpu
