// What the CPU backend decides before anything runs: regions, chunks, memory.
#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/backend/placement.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/program.hpp"
#include "ports/cpu/team.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cpu;

namespace {

nn::Network model(const std::string& name, std::size_t size) {
  nn::ResNetSpec spec;
  spec.model = name;
  spec.height = spec.width = size;
  return nn::resnet(spec);
}

}  // namespace

TEST_CASE("buffers that are alive together never overlap, and dead ones give their place away",
          "[cpu]") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    struct Life {
      std::size_t bytes, first, last, id;
    };
    MemoryPlanner planner;
    std::vector<Life> lives;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const Philox r = philox(seed, i, 1);
      const std::size_t first = below(r.word[0], 40), last = first + below(r.word[1], 10);
      lives.push_back({1 + below(r.word[2], 5000), first, last, 0});
      lives.back().id = planner.add(lives.back().bytes, first, last);
    }
    planner.place();
    std::size_t floor = 0;  // buffers alive at the same time need at least this much
    for (std::size_t t = 0; t < 50; ++t) {
      std::size_t alive = 0;
      for (const Life& life : lives)
        if (life.first <= t && t <= life.last) alive += (life.bytes + 63) / 64 * 64;
      floor = std::max(floor, alive);
    }
    CHECK(planner.total() >= floor);
    CHECK(planner.total() < planner.without_reuse());
    for (const Life& a : lives) {
      CHECK(planner.offset(a.id) % 64 == 0);
      CHECK(planner.offset(a.id) + a.bytes <= planner.total());
      for (const Life& b : lives) {
        if (a.id >= b.id || a.last < b.first || b.last < a.first) continue;
        const bool apart = planner.offset(a.id) + a.bytes <= planner.offset(b.id) ||
                           planner.offset(b.id) + b.bytes <= planner.offset(a.id);
        CHECK(apart);
      }
    }
  }
}

TEST_CASE("each batch norm starts a region and nothing else does", "[cpu]") {
  const std::vector<Unit> units = lower(model("resnet20", 32));
  CHECK(regions(units).size() == 19 + 2);  // 19 convolutions in a row, the last join, the head
  for (const Unit& unit : units) {
    if (unit.input)
      CHECK(unit.level >= units[*unit.input].level + (units[*unit.input].kind == UnitKind::conv));
    if (unit.skip) CHECK(unit.level >= units[*unit.skip].level);
    if (unit.kind == UnitKind::point && unit.name.find("relu1") != std::string::npos)
      CHECK_FALSE((unit.in_region || unit.kept));
    if (unit.kind == UnitKind::point && unit.skip) CHECK(unit.in_region);
    if (!unit.kept && unit.in_region) CHECK(units[*unit.skip].kept);
  }
}

TEST_CASE(
    "a downsampling convolution shares the region, and so the cached input, of the branch's first",
    "[cpu]") {
  const std::vector<Unit> units = lower(model("resnet50", 64));
  const auto level = [&](const std::string& name) {
    for (const Unit& unit : units)
      if (unit.name == name) return unit.level;
    throw Error("no unit " + name);
  };
  for (const char* stage : {"layer1", "layer2", "layer3", "layer4"})
    CHECK(level(std::string(stage) + ".0.downsample.0") == level(std::string(stage) + ".0.conv1"));
}

TEST_CASE("chunks cover every row once, in order, for any batch and number of lanes", "[cpu]") {
  const nn::Network network = GENERATE(model("resnet20", 32), model("resnet50", 64));
  const std::vector<Unit> units = lower(network);
  const std::size_t chunk_bytes = GENERATE(1u, 50'000u, 1u << 20);
  for (const std::size_t batch : {1u, 2u, 7u, 100u, 128u}) {
    for (const std::size_t lanes : {1u, 2u, 3u, 16u}) {
      if (lanes > batch) continue;
      backend::ProgramSpec spec;
      spec.batch = batch;
      for (const Region& region :
           make_regions(network, units, spec, lanes, Storage::fp32, chunk_bytes)) {
        std::size_t next = 0, index = 0;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          CHECK_FALSE(region.lanes[lane].empty());
          for (const Chunk& chunk : region.lanes[lane]) {
            CHECK(chunk.first == next);
            CHECK(chunk.index == index++);
            CHECK(chunk.lane == lane);
            CHECK((chunk.count > 0 && chunk.count <= region.chunk_stripes));
            CHECK(chunk.first_of_lane == (&chunk == &region.lanes[lane].front()));
            next += chunk.count;
          }
        }
        CHECK(next == batch * region.stripes);
        CHECK(region.chunks == index);
      }
    }
  }
}

TEST_CASE("where lanes share the rows, each line is in one band, which has all that it reads",
          "[cpu]") {
  using nn::WindowLines;
  const WindowLines window = GENERATE(WindowLines{7, 7, 1, 1, 0}, WindowLines{9, 5, 3, 2, 1},
                                      WindowLines{1, 1, 3, 1, 1}, WindowLines{224, 112, 7, 2, 3},
                                      WindowLines{8, 4, 1, 2, 0}, WindowLines{12, 12, 3, 1, 1});
  const std::size_t rows = GENERATE(1u, 3u), lanes = GENERATE(1u, 2u, 5u, 40u);
  std::size_t next = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane)
    for (const Band& band : bands_of(window, rows, lane, lanes)) {
      CHECK(band.image * window.out_height + band.first == next);
      CHECK(band.first + band.count <= window.out_height);
      next += band.count;
      CHECK(band.above + band.in_count + band.below ==
            (band.count - 1) * window.stride + window.kernel);
      CHECK(band.in_first + window.padding == band.first * window.stride + band.above);
      CHECK((band.in_count > 0 && band.in_first + band.in_count <= window.height));
      if (band.above > 0) CHECK(band.in_first == 0);
      if (band.below > 0) CHECK(band.in_first + band.in_count == window.height);
    }
  CHECK(next == rows * window.out_height);
}

TEST_CASE("where lanes share the rows, no unit reads what its own region writes", "[cpu]") {
  const nn::Network network = GENERATE(model("resnet20", 32), model("resnet50", 64));
  const std::vector<Unit> units = fold(network, true);
  for (const Unit& unit : units)
    for (const auto& source : {unit.input, unit.skip})
      if (source) CHECK(units[*source].level < unit.level);
  for (const Region& region : share_rows(units, 2, 5)) {
    CHECK(region.lanes.size() == 5);
    for (const auto& lane : region.lanes) CHECK((lane.size() == 1 && lane[0].count == 2));
  }
}

TEST_CASE("bands cover every line once, in order, and none is empty or of two images",
          "[cpu][bands]") {
  const nn::Network network = GENERATE(model("resnet20", 32), model("resnet50", 97));
  const std::vector<Unit> units = lower(network, true);
  ProgramSpec spec;
  spec.batch = GENERATE(1u, 2u, 3u);
  const std::size_t threads = GENERATE(2u, 3u, 4u, 5u, 16u);
  const std::size_t chunk_bytes = GENERATE(1u, 1u << 20);
  const std::size_t lanes = lanes_of(network, spec, threads);
  CHECK((lanes <= threads && lanes >= std::min(threads, spec.batch)));
  if (lanes <= spec.batch) return;
  for (const Region& region :
       make_regions(network, units, spec, lanes, Storage::fp32, chunk_bytes)) {
    if (units[region.units[0]].kind == UnitKind::head) continue;  // it has whole images
    for (const std::size_t u : region.units) {
      const std::size_t height = network.nodes[units[u].node].shape.height;
      std::size_t next = 0, most = 0, least = region.stripes * spec.batch;
      for (const auto& lane : region.lanes) {
        std::size_t own = 0;
        for (const Chunk& chunk : lane) {
          const nn::LineRange lines = chunk.of(height);
          CHECK((lines.first == next && lines.count > 0));
          CHECK(lines.first / height == (lines.end() - 1) / height);
          next = lines.end();
          own += chunk.count;
        }
        most = std::max(most, own);
        least = std::min(least, own);
      }
      CHECK(next == spec.batch * height);
      CHECK(most == least);
    }
  }
}

TEST_CASE("of bands, no unit reads lines that its own region writes for another chunk",
          "[cpu][bands]") {
  const nn::Network network = GENERATE(model("resnet20", 32), model("resnet50", 64));
  const std::vector<Unit> units = lower(network, true);
  for (const Unit& unit : units) {
    if (!unit.input || !units[*unit.input].in_region || unit.kind == UnitKind::point) continue;
    const nn::Node& node = network.nodes[unit.node];
    const bool own_lines = unit.kind == UnitKind::conv && node.kernel == 1 && node.stride == 1 &&
                           units[*unit.input].kind != UnitKind::pool;
    INFO(unit.name);
    CHECK((units[*unit.input].level < unit.level || own_lines));
  }
}

TEST_CASE("a team runs every lane and hands an exception to the caller", "[cpu]") {
  Team team(std::vector<std::vector<int>>(4));
  std::vector<int> calls(4);
  for (int round = 0; round < 1000; ++round) team.run([&](std::size_t lane) { ++calls[lane]; });
  CHECK(calls == std::vector<int>(4, 1000));
  for (const std::size_t thrower : {0u, 3u}) {
    CHECK_THROWS_WITH(team.run([&](std::size_t lane) {
      if (lane == thrower) throw Error("lane " + std::to_string(lane));
    }),
                      Catch::Contains("lane " + std::to_string(thrower)));
  }
  team.run([&](std::size_t lane) { ++calls[lane]; });
  CHECK(calls == std::vector<int>(4, 1001));
}

TEST_CASE("precisions that a CPU lacks are errors that name them", "[cpu]") {
  const auto backend = make_cpu_backend({});
  const nn::Network network = model("resnet20", 32);
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  ProgramSpec spec;
  spec.mean = spec.stddev = {1, 1, 1};
  spec.precision = Precision::fp16;
  CHECK_THROWS_WITH(backend->compile(network, spec, *parameters), Catch::Contains("fp16"));
}
