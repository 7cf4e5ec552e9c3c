#include <algorithm>
#include <cstring>
#include <functional>
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

/// The same in bands, none of which has lines of two images; of a tile, of its stripes.
void cut_bands(Region& region, std::size_t number, const backend::ProgramSpec& spec,
               std::size_t lanes, std::size_t chunk_stripes) {
  region.lanes.resize(lanes);
  const std::size_t stripes = region.stripes / spec.tile.count;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const nn::LineRange own = nn::even_lines(spec.batch * stripes, lane, lanes);
    for (std::size_t at = own.first; at < own.end();) {
      const std::size_t image = at / stripes, end = std::min((image + 1) * stripes, own.end());
      const nn::LineRange run{at % stripes, end - at};
      cut(region, number, lane, run.after(image * region.stripes + spec.tile.index * stripes),
          chunk_stripes);
      at = end;
    }
  }
}

/// A lane begins with what it can do before lines of other tiles are there.
void mark_edges(const nn::Network& network, const std::vector<Unit>& units,
                const nn::TilePlace& tile, Region& region) {
  std::size_t index = 0;
  for (std::vector<Chunk>& chunks : region.lanes) {
    for (Chunk& chunk : chunks)
      chunk.reads_other_tiles = reads_other_tiles(network, units, region.units, tile, chunk);
    std::ranges::stable_partition(chunks, std::logical_not<>(), &Chunk::reads_other_tiles);
    for (Chunk& chunk : chunks) {
      chunk.first_of_lane = &chunk == &chunks.front();
      chunk.index = index++;
    }
  }
}

/// Into how many stripes an image has to be cut so that all lanes of all tiles have as many.
std::size_t stripes_for(const backend::ProgramSpec& spec, std::size_t lanes) {
  return spec.tile.count * (lanes / std::gcd(spec.batch, lanes));
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

bool can_share_rows(const nn::Network& network, bool training) {
  return std::none_of(network.nodes.begin(), network.nodes.end(), [&](const nn::Node& node) {
    const bool is_boundary = node.op == nn::Op::receive || node.op == nn::Op::send;
    return (is_boundary && !training) || node.padding >= node.kernel;
  });
}

std::size_t lanes_of(const nn::Network& network, const backend::ProgramSpec& spec,
                     std::size_t at_most) {
  const bool is_tile = !spec.tile.is_whole();
  if ((at_most <= spec.batch && !is_tile) || !can_share_rows(network, spec.training))
    return std::min(at_most, spec.batch);
  if (!spec.training) return at_most;
  const std::size_t most = nn::most_tiles(network);
  std::size_t lanes = at_most;
  while (lanes > 1 && stripes_for(spec, lanes) > most) --lanes;
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
  if (unit.looks_again)
    out = nn::covering(out, nn::readers_of(window, chunk.in_image(map.shape.height)).lines);
  return nn::read_by(window, out).lines.after(chunk.image() * map.shape.height);
}

void Context::plan_lines() {
  for (std::size_t tile = 0; tile < spec.tile.count; ++tile)
    tile_lines.push_back(lines_of_tile(network, units, {tile, spec.tile.count}));
  held = tile_lines[spec.tile.index];
  for (std::size_t u = 0; u < units.size(); ++u)
    for (auto part : {&UnitLines::value, &UnitLines::gradient, &UnitLines::input_gradient})
      for (const nn::LineRange& its : needed(u, part))
        (held[u].*part).count = std::max((held[u].*part).count, its.count);
}

std::vector<nn::LineRange> Context::needed(std::size_t unit, nn::LineRange UnitLines::*part) const {
  std::vector<nn::LineRange> all;
  for (const std::vector<UnitLines>& of_tile : tile_lines) all.push_back(of_tile[unit].*part);
  return all;
}

void Context::share_lines(LineMessage& message, std::size_t buffer, const Map& map,
                          std::size_t unit, nn::LineRange UnitLines::*part) {
  const auto place = [this, buffer, map](std::size_t image, const nn::LineRange& of_image) {
    return at(buffer) + map.offset(of_image.after(image * map.shape.height));
  };
  const std::size_t line_bytes = map.line_bytes;
  message.add({.needed = needed(unit, part),
               .height = map.shape.height,
               .line_bytes = line_bytes,
               .give =
                   [=](std::size_t image, const nn::LineRange& of_image, std::byte* to) {
                     std::memcpy(to, place(image, of_image), of_image.count * line_bytes);
                   },
               .take =
                   [=](std::size_t image, const nn::LineRange& of_image, const std::byte* from) {
                     std::memcpy(place(image, of_image), from, of_image.count * line_bytes);
                   }});
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
                                 const backend::ProgramSpec& spec, std::size_t lanes,
                                 Storage storage, std::size_t chunk_bytes) {
  std::vector<Region> result;
  for (const std::vector<std::size_t>& members : regions(units)) {
    Region region;
    region.units = members;
    region.name = name_of(units, members);
    const Weight weight = weigh(network, units, members, storage);
    const std::size_t budget = chunk_budget(weight, chunk_bytes);
    const bool head = units[members.back()].kind == UnitKind::head;
    const bool bands = trains_bands(spec, lanes) && !head;
    const std::size_t cuts = bands ? stripes_for(spec, lanes) : 1;
    region.stripes =
        bands ? cuts * std::min(most_cuts(network, units, members, cuts),
                                std::max<std::size_t>(1, weight.image_bytes / cuts / budget))
              : stripes_of_image(weight.image_bytes, budget, most_stripes(network, units, members));
    const std::size_t fit = budget * region.stripes / std::max<std::size_t>(1, weight.image_bytes);
    if (bands) {
      cut_bands(region, result.size(), spec, lanes, std::max<std::size_t>(1, fit));
      if (!spec.tile.is_whole()) mark_edges(network, units, spec.tile, region);
    } else {
      cut_images(region, result.size(), spec.batch, lanes,
                 head ? spec.batch : std::max<std::size_t>(1, fit));
    }
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
