#include <algorithm>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
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

/// Cuts a lane's stripes [begin, end) into pieces as equal as possible.
void cut(Region& region, std::size_t number, std::size_t lane, nn::LineRange run,
         std::size_t chunk_stripes) {
  std::vector<Chunk>& chunks = region.lanes[lane];
  const std::size_t pieces = (run.count + chunk_stripes - 1) / chunk_stripes;
  for (std::size_t p = 0; p < pieces; ++p) {
    const auto [first, count] = nn::even_lines(run.count, p, pieces);
    chunks.push_back(
        {number, lane, region.chunks++, run.first + first, count, region.stripes, chunks.empty()});
    region.chunk_stripes = std::max(region.chunk_stripes, count);
  }
}

void cut_images(Region& region, std::size_t number, std::size_t batch, std::size_t lanes,
                std::size_t chunk_stripes) {
  region.lanes.resize(lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const auto [first, count] = nn::even_lines(batch, lane, lanes);
    cut(region, number, lane, {first * region.stripes, count * region.stripes}, chunk_stripes);
  }
}

/// The same in bands, none of which has lines of two images.
void cut_bands(Region& region, std::size_t number, std::size_t batch, std::size_t lanes,
               std::size_t chunk_stripes) {
  region.lanes.resize(lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const nn::LineRange own = nn::even_lines(batch * region.stripes, lane, lanes);
    for (std::size_t at = own.first; at < own.end();) {
      const std::size_t image_end = (at / region.stripes + 1) * region.stripes;
      const nn::LineRange run{at, std::min(image_end, own.end()) - at};
      cut(region, number, lane, run, chunk_stripes);
      at = run.end();
    }
  }
}

/// Into how many stripes an image has to be cut so that all lanes have as many.
std::size_t stripes_for(std::size_t batch, std::size_t lanes) {
  return lanes / std::gcd(batch, lanes);
}

std::size_t fewest_lines(const nn::Network& network) {
  std::size_t fewest = network.input.height;
  for (const nn::Node& node : network.nodes)
    if (node.op == nn::Op::conv || node.op == nn::Op::max_pool)
      fewest = std::min(fewest, node.shape.height);
  return fewest;
}

/// How often each of those stripes may be cut again, so that a chunk fits in a cache. Where windows
/// read the lines of others, they are made again: so a chunk has some lines.
std::size_t most_cuts(const nn::Network& network, const std::vector<Unit>& units,
                      const std::vector<std::size_t>& region, std::size_t stripes) {
  constexpr std::size_t fewest = 8;
  std::size_t most = network.input.height;
  for (const std::size_t u : region) {
    const nn::Node& node = network.nodes[units[u].node];
    const std::size_t lines = pointwise(network, units, units[u]) ? 1 : fewest;
    most = std::min(most, std::max<std::size_t>(1, node.shape.height / (stripes * lines)));
  }
  return most;
}

std::string name_of(const std::vector<Unit>& units, const std::vector<std::size_t>& members) {
  std::string name;
  for (const std::size_t u : members)
    if (has_conv(units[u]) || units[u].kind == UnitKind::head)
      name += (name.empty() ? "" : "+") + units[u].name;
  return name.empty() ? units[members.back()].name : name;
}

}  // namespace

nn::Network chunked_like(const nn::Network& network, const backend::ProgramSpec& spec) {
  return spec.training && spec.whole ? nn::trained_part(*spec.whole) : network;
}

bool can_share_rows(const nn::Network& network) {
  return std::none_of(network.nodes.begin(), network.nodes.end(), [](const nn::Node& node) {
    return node.op == nn::Op::receive || node.op == nn::Op::send || node.padding >= node.kernel;
  });
}

std::size_t lanes_of(const nn::Network& network, const backend::ProgramSpec& spec,
                     std::size_t at_most) {
  if (at_most <= spec.batch || !can_share_rows(network)) return std::min(at_most, spec.batch);
  if (!spec.training) return at_most;
  const std::size_t most = fewest_lines(network);
  std::size_t lanes = at_most;
  while (lanes > spec.batch && stripes_for(spec.batch, lanes) > most) --lanes;
  return lanes;
}

nn::LineRange Context::lines_read(std::size_t reader, const Map& map, const Chunk& chunk) const {
  const Unit& unit = units[reader];
  if (!has_bands || unit.kind == UnitKind::head) return map.of(chunk);
  const nn::Node& node = network.nodes[unit.node];
  const std::size_t stride = unit.kind == UnitKind::point ? unit.stride : node.stride;
  const nn::WindowLines window{map.shape.height, node.shape.height, node.kernel, stride,
                               node.padding};
  nn::LineRange out = chunk.in_image(node.shape.height);
  if (unit.kind == UnitKind::pool)  // backward looks again which value was the largest
    out = nn::covering(out, nn::readers_of(window, chunk.in_image(map.shape.height)).lines);
  return nn::read_by(window, out).lines.after(chunk.image() * map.shape.height);
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
    const bool head = units[members.back()].kind == UnitKind::head;
    const bool bands = lanes > batch && !head;
    const std::size_t cuts = bands ? stripes_for(batch, lanes) : 1;
    region.stripes =
        bands ? cuts * std::min(most_cuts(network, units, members, cuts),
                                std::max<std::size_t>(1, weight.image_bytes / cuts / budget))
              : stripes_of_image(weight.image_bytes, budget, most_stripes(network, units, members));
    const std::size_t fit = budget * region.stripes / std::max<std::size_t>(1, weight.image_bytes);
    const auto cut_all = bands ? cut_bands : cut_images;
    cut_all(region, result.size(), batch, lanes, head ? batch : std::max<std::size_t>(1, fit));
    result.push_back(std::move(region));
  }
  return result;
}

void cut_alike(std::vector<Region>& regions, const std::vector<Unit>& units,
               const std::vector<Region>& whole, const std::vector<Unit>& whole_units) {
  const auto has = [&](const Region& region, const std::string& name) {
    return std::ranges::any_of(region.units,
                               [&](std::size_t u) { return whole_units[u].name == name; });
  };
  for (std::size_t r = 0; r < regions.size(); ++r) {
    Region& region = regions[r];
    const auto inside = std::ranges::find_if(region.units, [&](std::size_t u) {
      return units[u].kind != UnitKind::receive && units[u].kind != UnitKind::send;
    });
    if (inside == region.units.end()) continue;  // nothing is added up there
    const auto like = std::ranges::find_if(
        whole, [&](const Region& one) { return has(one, units[*inside].name); });
    check(like != whole.end(), units[*inside].name + " is not in the whole network");
    region.lanes = like->lanes;
    region.chunks = like->chunks;
    region.stripes = like->stripes;
    region.chunk_stripes = like->chunk_stripes;
    for (std::vector<Chunk>& lane : region.lanes)
      for (Chunk& chunk : lane) chunk.region = r;
  }
}

}  // namespace lockstep::cpu
