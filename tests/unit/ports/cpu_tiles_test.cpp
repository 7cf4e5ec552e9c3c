// Tiles: ranks, which are threads here, that have different lines of the same images.
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/backend/tile_group.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/support/queues.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

using Tensors = std::map<std::string, std::vector<float>>;

/// What all tiles of a step have together.
struct Step {
  double loss = 0;
  Tensors gradients;                       ///< added up, and shares of statistics too
  std::size_t activations = 0, bytes = 0;  ///< of memory, of one of them; of messages, of all
  std::vector<std::vector<float>> logits;
};

struct How {
  std::size_t rows = 1, tiles = 2, threads = 1;
  Precision precision = Precision::fp32;
  bool winograd = false;
  std::size_t segments = 0;
  std::size_t chunk_bytes = CpuBackendSpec{}.chunk_bytes;
  bool copies = false;
};

std::string name_of(const How& how) {
  return fmt::format("{} rows, {} tiles of {} threads, {} segments, winograd {}", how.rows,
                     how.tiles, how.threads, how.segments, how.winograd);
}

ProgramSpec spec_for(const Case& c, const How& how) {
  ProgramSpec spec = spec_of(c, how.rows, how.precision);
  spec.winograd.mode = how.winograd ? Winograd::Mode::everywhere : Winograd::Mode::never;
  if (how.segments > 0) spec.recompute = {Recompute::Mode::segments, how.segments};
  return spec;
}

std::unique_ptr<Backend> cpu_for(const How& how) {
  return make_cpu_backend({std::vector<std::vector<int>>(how.threads), how.chunk_bytes});
}

Step run_tiles(const Case& c, const How& how) {
  Step all;
  std::mutex mutex;
  std::vector<Tensors> of_tiles(how.tiles);
  Queues queues;
  all.logits.resize(how.tiles);
  const auto told = threads_tell(queues, static_cast<int>(how.tiles), how.copies,
                                 [&](comm::Communicator& world) -> std::string {
                                   auto backend = cpu_for(how);
                                   const auto group = make_tile_group(how.tiles, *backend, world);
                                   ProgramSpec spec = spec_for(c, how);
                                   spec.tiles = group.get();
                                   if (group) spec.tile = group->place();
                                   Compiled compiled(c, spec, std::move(backend));
                                   const double loss = compiled.run(c, 0, false);
                                   const std::scoped_lock lock(mutex);
                                   all.loss += loss;
                                   all.activations = std::max(
                                       all.activations, compiled.program->memory().activations);
                                   all.logits[spec.tile.index].resize(how.rows * c.network.classes);
                                   compiled.program->copy_logits(all.logits[spec.tile.index]);
                                   const nn::ArenaLayout& layout = compiled.parameters->layout();
                                   for (std::size_t s = 0; s < layout.slices.size(); ++s)
                                     of_tiles[spec.tile.index][layout.slices[s].tensor.name] =
                                         compiled.exported(Part::gradients, s);
                                   return "";
                                 });
  for (const std::string& fault : told) CHECK(fault.empty());
  for (const nn::Tensor& tensor : nn::tensors(c.network)) {
    const float share = nn::learned(tensor.role) ? 1 : 1 / static_cast<float>(how.tiles);
    std::vector<float>& sum = all.gradients[tensor.name];
    for (const Tensors& own : of_tiles) {
      const std::vector<float>& values = own.at(tensor.name);
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += share * values[i];
    }
  }
  all.bytes = queues.bytes;
  return all;
}

/// The largest distance of a tensor from the oracle's.
double farthest(const Step& step, const std::map<std::string, std::vector<double>>& want) {
  double most = 0;
  for (const auto& [name, exact] : want) {
    const double now = distance(step.gradients.at(name), exact);
    if (!(now <= most)) most = now;
  }
  return most;
}

/// Statistics: 0.1 of the batch's.
double farthest_statistic(const Step& step, Case& c) {
  double most = 0;
  for (const nn::Tensor& tensor : nn::tensors(c.network)) {
    if (nn::learned(tensor.role)) continue;
    const std::string node = c.network.nodes[tensor.node].name;
    std::vector<double> want = tensor.role == nn::Role::running_mean
                                   ? c.oracle.batch_mean(node)
                                   : c.oracle.batch_variance(node);
    for (double& one : want) one *= 0.1;
    const double now = distance(step.gradients.at(tensor.name), want);
    if (!(now <= most)) most = now;
  }
  return most;
}

}  // namespace

TEST_CASE("tiles give the oracle's loss, gradients and statistics, every node", "[cpu][tiles]") {
  const std::size_t rows = GENERATE(1u, 3u), threads = GENERATE(1u, 2u);
  const std::size_t chunk_bytes = GENERATE(1u, 1u << 20);
  const bool winograd = GENERATE(false, true);
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, rows);
    const auto want = c.oracle.backward();
    for (std::size_t tiles = 2; tiles <= nn::most_tiles(network); ++tiles) {
      const How how{.rows = rows,
                    .tiles = tiles,
                    .threads = threads,
                    .winograd = winograd,
                    .chunk_bytes = chunk_bytes,
                    .copies = tiles % 2 == 0};
      INFO(network.nodes.size() << " nodes, " << name_of(how));
      const Step step = run_tiles(c, how);
      CHECK(step.loss / static_cast<double>(rows) == Approx(c.loss).epsilon(1e-6));
      CHECK(farthest(step, want) <= 5e-5);
      CHECK(farthest_statistic(step, c) <= 1e-5);
      for (const auto& logits : step.logits) CHECK(logits == step.logits[0]);
    }
  }
}

TEST_CASE("tiles make values again with the same bits, and compute in bf16", "[cpu][tiles]") {
  for (const nn::Network& network : all_sketches()) {
    const std::size_t tiles = std::min<std::size_t>(3, nn::most_tiles(network));
    Case c = settled_case(network, 2);
    How how{.rows = 2, .tiles = tiles, .threads = 2};
    const Step kept = run_tiles(c, how);
    const std::size_t most = cpu::cut_units(network, cpu::lower(network, true)).size() + 1;
    for (std::size_t segments = 2; segments <= std::min<std::size_t>(3, most); ++segments) {
      how.segments = segments;
      how.copies = segments == 2;
      INFO(network.nodes.size() << " nodes, " << name_of(how));
      const Step again = run_tiles(c, how);
      CHECK(again.gradients == kept.gradients);
      CHECK(again.loss == kept.loss);
    }
    if (!test::has_bf16()) continue;
    how = {.rows = 2, .tiles = tiles, .precision = Precision::bf16};
    const Step narrow = run_tiles(c, how);
    CHECK(narrow.loss / 2 == Approx(c.loss).epsilon(0.02));
    how.tiles = 1;
    const auto want = c.oracle.backward();
    CHECK(farthest(narrow, want) <= std::max(0.3, 2 * farthest(run_tiles(c, how), want)));
  }
}

namespace {

/// What the tiles of a group send each other in a step, apart from the message's order: at each
/// border the lines that windows reach beyond it, in both passes; moments and averages to all.
std::size_t bytes_of_step(const nn::Network& network, std::size_t rows, std::size_t tiles) {
  std::size_t floats = 0;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const nn::TilePlace place{tile, tiles};
    const auto beyond = [&](const nn::LineRange& lines, const nn::Shape& shape) {
      const nn::LineRange own = place.of(shape.height);
      return (nn::covering(lines, own).count - own.count) * shape.width * shape.channels * rows;
    };
    for (const nn::Node& node : network.nodes) {
      if (node.op == nn::Op::batch_norm) floats += 2 * (tiles - 1) * (2 * node.shape.channels);
      if (node.op == nn::Op::global_avg_pool) floats += (tiles - 1) * rows * node.shape.channels;
      const bool reads_image =
          !node.inputs.empty() && network.nodes[node.inputs[0]].op == nn::Op::input;
      const bool pool = node.op == nn::Op::max_pool, means = node.op == nn::Op::avg_pool;
      if ((node.op != nn::Op::conv && !pool && !means) || reads_image) continue;
      const nn::Shape& in = network.nodes[node.inputs[0]].shape;
      const nn::WindowLines window{in.height, node.shape.height, node.kernel, node.stride,
                                   node.padding};
      const nn::LineRange outs = nn::readers_of(window, place.of(in.height)).lines;
      const nn::LineRange made = place.of(node.shape.height);
      floats += beyond(nn::read_by(window, pool ? nn::covering(made, outs) : made).lines, in);
      // A pool's gradient comes from each of its two readers.
      floats += (pool ? 2 : 1) * beyond(outs, node.shape);
    }
  }
  return floats * sizeof(float);
}

}  // namespace

TEST_CASE("tiles send their borders and the moments, and no more", "[cpu][tiles]") {
  const std::size_t rows = 2;
  for (const auto& [side, tiles] : {std::pair{33u, 2u}, {65u, 3u}}) {
    const Case c(nn::resnet(nn::usual_resnet(side == 33 ? "resnet50" : "resnet18", side, 10)), rows,
                 3);
    const std::size_t want = bytes_of_step(c.network, rows, tiles),
                      sent = run_tiles(c, {.rows = rows, .tiles = tiles}).bytes;
    INFO(tiles << " tiles, " << sent << " bytes, " << want << " by the formula");
    CHECK(static_cast<double>(sent) == Approx(static_cast<double>(want)).epsilon(0.01));
  }
}

TEST_CASE("a tile has its part of the memory", "[cpu][tiles]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet50", 1024, 10));
  std::map<std::size_t, double> bytes;
  for (const std::size_t tiles : {1u, 2u, 4u}) {
    Queues queues;
    threads_tell(queues, static_cast<int>(tiles), true,
                 [&](comm::Communicator& world) -> std::string {
                   const auto backend = cpu_for({});
                   const auto group = make_tile_group(tiles, *backend, world);
                   ProgramSpec spec;
                   spec.mean = spec.stddev = {1, 1, 1};
                   spec.tiles = group.get();
                   if (group) spec.tile = group->place();
                   const auto parameters = backend->make_parameters(network, spec.precision);
                   const MemoryPlan plan = backend->compile(network, spec, *parameters)->memory();
                   if (world.rank() == 0) bytes[tiles] = static_cast<double>(plan.activations);
                   return "";
                 });
  }
  CHECK(bytes[2] <= 0.52 * bytes[1]);
  CHECK(bytes[4] <= 0.27 * bytes[1]);
}

TEST_CASE("a tile that is missing is named, with what it has not sent", "[cpu][tiles]") {
  Queues queues;
  const auto told = threads_tell(
      queues, 2, true,
      [&](comm::Communicator& world) -> std::string {
        const auto backend = cpu_for({});
        const auto group = make_tile_group(2, *backend, world);
        Case c(padded_shortcuts(), 1, 3);
        ProgramSpec spec = spec_for(c, {});
        spec.tiles = group.get();
        spec.tile = group->place();
        if (world.rank() == 1) return "gone";
        Compiled(c, spec, cpu_for({})).run(c, 0, false);
        return "arrived";
      },
      0.5);
  CHECK(told[1] == "gone");
  CHECK_THAT(told[0], Catch::Contains("rank 1 did not arrive within"));
}

TEST_CASE("a backend that cannot share images is named with the key", "[tiles]") {
  const auto clock = make_clock_backend({});
  SoloCommunicator none;
  CHECK(make_tile_group(1, *clock, none) == nullptr);
  CHECK_THROWS_WITH(make_tile_group(2, *clock, none),
                    Catch::StartsWith("tiles = 2: the clock backend"));
}

TEST_CASE("tiles of whole networks are as near to the oracle as one rank", "[cpu][tiles][slow]") {
  struct Size {
    const char* model;
    std::size_t side, most;
    double loss;  // bound, as float32 and its order of additions have it
  };
  const Size size = GENERATE(Size{"resnet20", 32, 8, 1e-6}, Size{"resnet20", 33, 8, 1e-6},
                             Size{"resnet18", 97, 4, 3e-6}, Size{"resnet50", 65, 3, 5e-5});
  Case c(nn::resnet(nn::usual_resnet(size.model, size.side, 10)), 2, 3);
  const auto want = c.oracle.backward();
  const Step one = run_tiles(c, {.rows = 2, .tiles = 1});
  for (const std::size_t tiles : {std::size_t{2}, std::size_t{3}, size.most}) {
    INFO(size.model << " at " << size.side << ", " << tiles << " tiles");
    const Step step = run_tiles(c, {.rows = 2, .tiles = tiles});
    CHECK(std::abs(step.loss / 2 / c.loss - 1) <= size.loss);
    // A ReLU may go the other way, with whole images too: where none does, gradients are 1e-5
    // apart.
    CHECK(farthest(step, want) <= std::max(0.05, 3 * farthest(one, want)));
    CHECK(farthest_statistic(step, c) <= 1e-4);
  }
}
