#pragma once

// How a batch passes. A batch is cut into pieces that stay in a core's cache. Each piece passes
// through normalisation, ReLU, convolution and the sums of the next batch norm at once. Batch norm
// needs all of a convolution's output, so each batch norm begins a new region; inside a region,
// every lane (a thread with its rows) works chunk by chunk. For evaluation the batch norms are
// folded into the convolutions, when weights have changed or another program has run, and a region
// holds several convolutions where images are larger than weights. Where a batch has fewer rows
// than there are lanes, a lane gets a part of an image. In evaluation each unit is then a region,
// and each lane makes a part of its value: some lines, or by Winograd's algorithm some tiles or
// channels. In training a chunk is then a band of an image's lines: the same share of each map. A
// unit that reads lines of other bands reads what an earlier region has made, or makes those lines
// itself, once more, from such values.

#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/nn/lines.hpp"
#include "ports/cpu/kernels/kernels.hpp"
#include "ports/cpu/line_message.hpp"
#include "ports/cpu/norm_message.hpp"
#include "ports/cpu/parameters.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/plan/tiling.hpp"

namespace lockstep::cpu {

/// Consecutive stripes of the batch that one lane takes through one region while they are in its
/// cache. A stripe is a whole image, or a band of 1/stripes of each image's lines: of whole lines
/// where no unit in the region needs neighbouring pixels, or where the program has bands, where all
/// stripes of a chunk are of one image.
struct Chunk {
  std::size_t region = 0, lane = 0;
  std::size_t index = 0;  ///< among all chunks of the region, in the order of lanes and of what
                          ///< each does: partial sums are stored by it and added in order, so that
                          ///< the bits do not depend on the timing
  std::size_t first = 0, count = 0;  ///< stripes
  std::size_t stripes = 1;           ///< in an image
  bool first_of_lane = false;
  bool reads_other_tiles = false;

  /// Its lines of the batch's maps of this height, one below the other.
  nn::LineRange of(std::size_t height) const {
    const std::size_t begin = first * height / stripes;
    return {begin, (first + count) * height / stripes - begin};
  }
  /// Where the program has bands: the image that it is of, and its lines in there.
  std::size_t image() const { return first / stripes; }
  nn::LineRange in_image(std::size_t height) const {
    const nn::LineRange lines = of(height);
    return {lines.first - image() * height, lines.count};
  }
};

/// The value of a unit for one image.
struct Map {
  nn::Shape shape;
  std::size_t line_bytes = 0;
  nn::LineRange held;  ///< the lines of an image that a buffer has room for
  Map() = default;
  Map(const nn::Shape& shape_, Storage storage)
      : shape(shape_),
        line_bytes(shape.width * shape.channels * bytes_of(storage)),
        held{0, shape.height} {}
  Map with(const nn::LineRange& lines) const {
    Map other = *this;
    other.held = lines;
    return other;
  }
  std::size_t bytes() const { return held.count * line_bytes; }  ///< in a buffer
  /// Where these lines of the batch's maps begin in a buffer of it.
  std::size_t offset(const nn::LineRange& lines) const {
    const std::size_t image = lines.first / shape.height, line = lines.first % shape.height;
    return (image * held.count + line - held.first) * line_bytes;
  }
  std::size_t pixels(const nn::LineRange& lines) const { return lines.count * shape.width; }
  nn::LineRange of(const Chunk& chunk) const { return chunk.of(shape.height); }
};

/// Where a unit leaves the gradient of its input: in the lane's scratch, or in a buffer of the
/// batch where the input's unit is in an earlier region.
struct GradientPlace {
  Map map;
  std::size_t scratch = 0;
  std::optional<std::size_t> buffer;
};

/// Units that run one after the other on each chunk: in training those between two batch norms'
/// statistics. And the cut of the batch into chunks.
struct Region {
  std::string name;
  std::vector<std::size_t> units;
  std::vector<std::vector<Chunk>> lanes;  ///< chunks of each lane
  std::size_t chunks = 0, stripes = 1;
  std::size_t chunk_stripes = 0;  ///< of the largest chunk
  template <class Call>
  void each_chunk(const Call& call) const {
    for (const auto& lane : lanes)
      for (const Chunk& chunk : lane) call(chunk);
  }
};

/// The numbers of stripes that a region's chunks have: what primitives are made for.
inline std::set<std::size_t> chunk_sizes(const Region& region) {
  std::set<std::size_t> sizes;
  region.each_chunk([&](const Chunk& chunk) { sizes.insert(chunk.count); });
  return sizes;
}

class Runner;

/// Where a unit's value is: in a buffer for the whole batch, or, in evaluation, where only its own
/// region reads it, chunk by chunk in each lane's scratch.
struct ValuePlace {
  bool passing = false;
  std::size_t at = 0;  ///< the buffer's number, or the offset in the scratch
};

/// The network that decides how a program's batch is cut: of a stage in training the whole one,
/// because the bits of sums depend on it.
nn::Network chunked_like(const nn::Network& network, const backend::ProgramSpec& spec);

/// True where all windows touch the image; in evaluation, of a whole network.
bool can_share_rows(const nn::Network& network, bool training);

/// How many lanes have something to do. Where there are fewer rows than that, lanes share them; in
/// training no band of a map is empty.
std::size_t lanes_of(const nn::Network& network, const backend::ProgramSpec& spec,
                     std::size_t at_most);

/// In training: chunks are bands of lines, because lanes or tiles share the rows.
inline bool trains_bands(const backend::ProgramSpec& spec, std::size_t lanes) {
  return spec.training && (lanes > spec.batch || !spec.tile.is_whole());
}

/// What the runners of one program share: sizes while planning, memory while running.
struct Context {
  /// The references must outlive it. Every lane has at least one image, or lanes share them.
  Context(const nn::Network& network_, const backend::ProgramSpec& spec_,
          CpuParameters& parameters_, Storage storage_, std::size_t lanes_at_most)
      : network(network_),
        spec(spec_),
        parameters(parameters_),
        kernels(cpu::kernels(storage_)),
        storage(storage_),
        lanes(lanes_of(chunked_like(network_, spec_), spec_, lanes_at_most)),
        shares_rows(!spec_.training && lanes > spec_.batch),
        has_bands(trains_bands(spec_, lanes)),
        scalars_of_slot(spec_.slots) {}

  const nn::Network& network;
  const backend::ProgramSpec& spec;
  CpuParameters& parameters;
  const Kernels& kernels;
  const Storage storage;
  const std::size_t lanes;
  /// Fewer rows than lanes. In evaluation: each unit is a region, and each lane makes a part of
  /// every value. In training, and for tiles: chunks are bands of lines.
  const bool shares_rows, has_bands;
  std::vector<Unit> units;
  std::vector<std::vector<UnitLines>> tile_lines;  ///< of each tile, by unit
  std::vector<UnitLines> held;  ///< by unit: the lines that this tile's buffers have room for,
                                ///< which is as much in each tile, so that all plan alike
  std::vector<Region> regions;
  std::vector<Runner*> runners;          ///< by unit
  std::vector<ValuePlace> value_places;  ///< by unit; in training of pools alone
  std::size_t slot = 0;                  ///< whose micro-batch runs
  std::vector<optim::StepScalars> scalars_of_slot;
  const optim::StepScalars& scalars() const { return scalars_of_slot[slot]; }

  /// The ranks with which batch norms share their statistics, or null.
  backend::NormSpan* span() const { return spec.tiles ? &spec.tiles->span() : spec.norm_span; }
  /// By region, with a span: what its batch norms need before forward, and before backward.
  std::vector<NormMessage> norm_statistics, norm_sums;
  /// By region, of tiles: lines of what it has made, after forward and after backward; and those of
  /// gradients that it makes once it begins to run backward.
  std::vector<LineMessage> made_values, made_gradients, output_gradients;

  std::vector<BufferRequest> requests;                       ///< buffers of the whole batch
  std::vector<std::pair<std::size_t, std::size_t>> lasting;  ///< requests of lasting_buffer()
  std::vector<std::size_t> scratch_of_region;  ///< bytes that a lane needs in each region
  std::size_t library_scratch = 0;             ///< bytes that oneDNN needs in a lane
  std::shared_ptr<HostMemory> block;  ///< shared with other programs: only one runs at a time
  std::vector<HostMemory> lane_scratch, lane_library_scratch;
  std::vector<dnnl::stream> streams;  ///< one for each lane

  /// Once planned, each buffer's place in the block, by slot: in forward, and in what comes after.
  backend::Placement::Offsets places;
  std::vector<bool> kept;      ///< by unit: its value has a place
  bool after_forward = false;  ///< which of the places hold
  /// With weights_later: places of what is late, and which of them a slot's micro-batch has.
  std::vector<std::vector<std::size_t>> late_places;
  std::vector<std::size_t> late_of_slot;

  void plan_lines();  ///< once the units are known
  std::vector<nn::LineRange> needed(std::size_t unit, nn::LineRange UnitLines::*part) const;
  /// Part of a message: what the tiles need of a buffer, whose maps are `map`.
  void share_lines(LineMessage& message, std::size_t buffer, const Map& map, std::size_t unit,
                   nn::LineRange UnitLines::*part);
  Map map_of(std::size_t node) const { return {network.nodes[node].shape, storage}; }
  std::size_t buffer(const BufferRequest& request) {
    requests.push_back(request);
    return requests.size() - 1;
  }
  /// A buffer for what `unit` makes in forward.
  std::size_t value_buffer(std::size_t bytes, std::size_t unit) {
    return buffer({BufferRequest::Kind::value, bytes, unit, 0, 0});
  }
  std::size_t forward_buffer(std::size_t bytes, std::size_t from, std::size_t to) {
    return buffer({BufferRequest::Kind::forward, bytes, 0, from, to});
  }
  /// One that region `region` uses, in the next forward again; unless memory is short, or another
  /// program runs between.
  std::size_t lasting_buffer(std::size_t bytes, std::size_t region) {
    lasting.emplace_back(requests.size(), region);
    return forward_buffer(bytes, 0, regions.size() - 1);
  }
  /// Regions run backward from the last to the first: `from` is the later one.
  std::size_t backward_buffer(std::size_t bytes, std::size_t from, std::size_t to) {
    return buffer({BufferRequest::Kind::backward, bytes, 0, from, to});
  }
  GradientPlace gradient_place(std::size_t unit, const Map& input) {
    const std::size_t region = units[unit].level, reads = units[*units[unit].input].level;
    if (reads == region) return {input, scratch(region, input), {}};
    return {input, 0, backward_buffer(input.bytes() * spec.batch, region, reads)};
  }
  std::size_t weights_buffer(std::size_t bytes, std::size_t region) {
    return buffer({BufferRequest::Kind::weights, bytes, 0, region, region});
  }
  std::size_t late_buffer(std::size_t bytes, std::size_t region) {
    return buffer({BufferRequest::Kind::late, bytes, 0, region, region});
  }
  /// Reserves a place in the lane's scratch of this region, for a chunk's own lines or for those
  /// that `reader` reads; returns its offset.
  std::size_t scratch(std::size_t region, const Map& map,
                      std::optional<std::size_t> reader = std::nullopt) {
    return fixed_scratch(region, most_lines(region, map, reader) * map.line_bytes);
  }
  std::size_t most_lines(std::size_t region, const Map& map,
                         std::optional<std::size_t> reader = std::nullopt) const {
    std::size_t most = 0;
    regions[region].each_chunk([&](const Chunk& chunk) {
      most = std::max(most, (reader ? lines_read(*reader, map, chunk) : map.of(chunk)).count);
    });
    return most;
  }
  /// The lines of `map`, its input or its skip, that a unit reads for a chunk.
  nn::LineRange lines_read(std::size_t unit, const Map& map, const Chunk& chunk) const;
  std::size_t fixed_scratch(std::size_t region, std::size_t bytes) {
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    scratch_of_region[region] += rounded;
    return scratch_of_region[region] - rounded;
  }
  template <class T = std::byte>
  T* at(std::size_t buffer) const {
    return block->as<T>(places[slot][after_forward][buffer]);
  }
  std::byte* at(const GradientPlace& place, const Chunk& chunk) const {
    return place.buffer ? at(*place.buffer) + place.map.offset(place.map.of(chunk))
                        : lane_at(chunk.lane, place.scratch);
  }
  std::byte* late_at(std::size_t buffer) const {
    return block->as<std::byte>(late_places[late_of_slot[slot]][buffer]);
  }
  std::byte* lane_at(std::size_t lane, std::size_t offset) const {
    return lane_scratch[lane].data() + offset;
  }
  /// The value of a unit that has its place there, for these lines: a chunk's own where it passes.
  std::byte* value_at(std::size_t unit, std::size_t lane, const Map& map,
                      const nn::LineRange& lines) const {
    const ValuePlace& place = value_places[unit];
    return place.passing ? lane_at(lane, place.at) : at(place.at) + map.offset(lines);
  }
};

/// One unit of the network on the CPU. plan() tells how much memory it needs; bind() is called once
/// the memory is there. Then, for each region: before_forward on every lane, a barrier, forward for
/// every chunk, a barrier. Backward is the same, then another barrier and after_backward on every
/// lane. In backward a region's units run in reverse. Before its backward a region may run forward
/// again, to make values that were not kept.
class Runner {
 public:
  Runner(Context& context, std::size_t number)
      : c(context),
        index(number),
        unit(context.units[number]),
        map(context.map_of(unit.node).with(context.held[number].value)) {}
  virtual ~Runner() = default;
  virtual void plan() = 0;
  virtual void bind() {}
  /// Evaluation: makes what forward needs of the weights, which have changed. Any thread calls it.
  virtual void fold() {}
  virtual void before_forward(std::size_t /*lane*/) {}  ///< in training
  virtual void forward(const Chunk&) = 0;
  virtual void after_forward() {}  ///< by one thread, once all lanes are there
  /// The same for values that backward makes again. What a batch norm learnt from the whole batch
  /// in forward stays.
  virtual void before_again(std::size_t /*lane*/) {}
  virtual void forward_again(const Chunk& chunk) { forward(chunk); }
  virtual void before_backward(std::size_t /*lane*/, bool /*accumulate*/) {}
  virtual void recompute(const Chunk&) {}  ///< in network order, before the chunk's backward
  virtual void backward(const Chunk&) {}
  virtual void after_backward(std::size_t /*lane*/, bool /*accumulate*/) {}
  /// The same for weight gradients that backward has left, after recompute().
  virtual void before_weights(bool /*accumulate*/) {}  ///< by one thread
  virtual void make_weights(const Chunk&) {}
  virtual void after_weights(std::size_t /*lane*/) {}
  /// The unit's value for these lines, computed now unless it is already there. Other lines than
  /// the chunk's own are those that the asking unit reads for it.
  virtual const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) = 0;
  const std::byte* value(const Chunk& chunk) { return value(chunk, map.of(chunk)); }
  /// Of tiles, once memory has been placed: what it gives to others, and gets from them.
  virtual void plan_messages() {}
  /// What this unit adds to the gradient of its input for the chunk's lines of the input.
  virtual const std::byte* input_gradient(const Chunk& chunk) = 0;
  /// The second of two gradients that come through a boundary; else nullptr.
  virtual const std::byte* second_gradient(const Chunk&) { return nullptr; }
  /// The arena's slices whose gradients this unit makes.
  virtual std::vector<std::size_t> slices() const { return {}; }
  /// Those of them that backward leaves.
  virtual std::vector<std::size_t> late_slices() const { return {}; }

  Context& c;
  const std::size_t index;
  const Unit& unit;
  const Map map;  ///< of the unit's value

 protected:
  /// This lane's part of [0, count), in multiples of 16.
  struct Range {
    std::size_t begin, end;
  };
  Range part(std::size_t count, std::size_t lane) const {
    const std::size_t blocks = (count + 15) / 16;
    const std::size_t begin = blocks * lane / c.lanes * 16,
                      end = blocks * (lane + 1) / c.lanes * 16;
    return {begin < count ? begin : count, end < count ? end : count};
  }
};

}  // namespace lockstep::cpu
