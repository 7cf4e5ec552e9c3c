// What the CUDA backend decides before anything runs. This needs its code and cuDNN, but no GPU.
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/lowering.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cuda;

namespace {

nn::Network model(const std::string& name) {
  nn::ResNetSpec spec;
  spec.model = name;
  const bool small = name == "resnet20";
  spec.height = spec.width = small ? 32 : 224;
  return nn::resnet(spec);
}

std::size_t count(const std::vector<Unit>& units, UnitKind kind) {
  return static_cast<std::size_t>(std::count_if(
      units.begin(), units.end(), [&](const Unit& unit) { return unit.kind == kind; }));
}

ProgramSpec program(std::size_t batch, Precision precision, bool training = true) {
  ProgramSpec spec;
  spec.batch = batch;
  spec.precision = precision;
  spec.training = training;
  return spec;
}

ConvPlanner h200() { return ConvPlanner(read_gpu_profile("jobs/gpus/h200.json").cudnn); }

/// A span of the tape during which a place in memory must keep its content.
struct Stay {
  std::string what;
  std::size_t at;
  std::size_t bytes, first, last;
};

/// Derived independently from what each kernel reads and writes, without a look at the planner.
std::vector<Stay> lives_of(const ProgramPlan& plan) {
  const std::size_t units = plan.units.size(), each = bytes_of(plan.storage);
  const auto back = [&](std::size_t u) { return 2 * units - 1 - u; };
  const auto at = [&](Place place) { return place == nowhere ? 0 : plan.offset(place); };
  const auto channels = [](const PlannedUnit& p) {
    return static_cast<std::size_t>(p.shape.channels);
  };
  std::vector<Stay> lives;
  for (std::size_t u = 0; u < units; ++u) {
    const PlannedUnit& p = plan.units[u];
    if (p.unit.kind == UnitKind::head) continue;
    if (p.sums != nowhere)
      lives.push_back({p.unit.name + " sums", at(p.sums), 8 * channels(p), u, p.unit.readers[0]});
    if (p.gradient_sums != nowhere)
      lives.push_back({p.unit.name + " gradient sums", at(p.gradient_sums),
                       20 * channels(plan.units[p.unit.input]), back(u), back(p.unit.input)});
    if (p.unit.kind == UnitKind::norm)
      lives.push_back({p.unit.name + " channels", at(p.extra), 36 * channels(p), u,
                       plan.training ? back(u) : u});
    const bool masked = p.unit.kind == UnitKind::norm && p.unit.relu && p.unit.skip;
    CHECK((p.mask != nowhere) == (masked && plan.training));
    if (p.mask != nowhere)
      lives.push_back({p.unit.name + " mask", at(p.mask), p.shape.count() * each / 16, u, back(u)});
    Stay value{p.unit.name, at(p.value), p.shape.count() * each, u, u};
    for (const std::size_t r : p.unit.readers) {
      value.last = std::max(value.last, r);
      const Unit& reader = plan.units[r].unit;
      if (plan.training && reader.input == u &&
          (reader.kind == UnitKind::conv || reader.kind == UnitKind::norm))
        value.last = std::max(value.last, back(r));
    }
    if (p.value != nowhere) lives.push_back(value);
    if (!plan.training || u == 0) continue;
    for (std::size_t k = 0; k < p.gradients.size(); ++k)
      lives.push_back({p.unit.name + " gradient", at(p.gradients[k]), p.shape.count() * each,
                       back(p.unit.readers[k]), back(u)});
  }
  return lives;
}

}  // namespace

TEST_CASE("ResNets fall into units, each node in one", "[cuda]") {
  const auto units = lower(model("resnet50"));
  CHECK(count(units, UnitKind::conv) == 53);
  CHECK(count(units, UnitKind::norm) == 53);
  CHECK(count(units, UnitKind::max_pool) == 1);
  CHECK(count(units, UnitKind::head) == 1);
  std::size_t sums = 0, relus = 0;
  for (const Unit& unit : units) {
    sums += unit.skip ? 1 : 0;
    relus += unit.relu ? 1 : 0;
    if (unit.skip) CHECK(unit.relu);
  }
  CHECK(sums == 16);
  CHECK(relus == 49);
  CHECK(count(lower(model("resnet20")), UnitKind::subsample) == 2);
}

TEST_CASE("a network that fits no unit is an error that names the node", "[cuda]") {
  nn::Network network = model("resnet20");
  nn::Node& relu = network.nodes[3];
  REQUIRE(relu.op == nn::Op::relu);
  relu.inputs = {1};  // after the convolution: nothing reads the batch norm
  CHECK_THROWS_WITH(lower(network), Catch::Matchers::Contains("relu"));

  network = model("resnet50");
  const auto pool = std::find_if(network.nodes.begin(), network.nodes.end(),
                                 [](const nn::Node& node) { return node.op == nn::Op::max_pool; });
  pool->kernel = 15;
  CHECK_NOTHROW(lower(network));
  pool->kernel = 16;  // a byte could not tell each of its pixels from none
  CHECK_THROWS_WITH(lower(network), Catch::Matchers::Contains("15 x 15"));
}

TEST_CASE(
    "places alive at the same time never overlap, in training, fused or not, and in evaluation",
    "[cuda]") {
  ConvPlanner planner = h200();
  std::vector<nn::Network> networks = test::all_sketches();
  for (const char* name : {"resnet18", "resnet50", "resnet20"}) networks.push_back(model(name));
  for (const nn::Network& network : networks) {
    for (const auto& [training, fused] : {std::pair{true, false}, {true, true}, {false, false}}) {
      ProgramSpec spec = program(3, Precision::fp16, training);
      spec.fuse_norms = fused;
      const ProgramPlan plan = plan_program(network, spec, planner);
      CHECK(plan.block < plan.without_reuse);
      const std::vector<Stay> lives = lives_of(plan);
      for (std::size_t i = 0; i < lives.size(); ++i) {
        const Stay& a = lives[i];
        CHECK(a.at % 256 == 0);
        CHECK(a.at + a.bytes <= plan.block);
        for (std::size_t k = i + 1; k < lives.size(); ++k) {
          const Stay& b = lives[k];
          // A gradient may take the place of what its own kernel reads last.
          if (a.last <= b.first || b.last <= a.first) continue;
          INFO(network.name << ": " << a.what << " and " << b.what);
          const bool apart = a.at + a.bytes <= b.at || b.at + b.bytes <= a.at;
          CHECK(apart);
        }
      }
    }
  }
}

TEST_CASE("after a sum, batch norm's gradient reads a bit for each value instead of the output",
          "[cuda]") {
  ConvPlanner planner = h200();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const nn::Network network = model("resnet50");
    const ProgramPlan plan = plan_program(network, program(2, precision), planner);
    std::map<std::string, double> moved;
    for (const StepFloor& step : floors(network, plan, std::nullopt)) moved[step.name] = step.bytes;
    std::size_t joins = 0;
    for (const PlannedUnit& p : plan.units) {
      if (p.mask == nowhere) continue;
      ++joins;
      const auto value = static_cast<double>(p.shape.count() * bytes_of(plan.storage));
      const double bits = value / 16, gradients = static_cast<double>(p.gradients.size());
      // x for the moments; then x, the skip and y.
      CHECK(moved.at(p.unit.name) == Approx(4 * value + bits));
      // x, the gradients and their sum; then x, this sum and dx.
      CHECK(moved.at(p.unit.name + " gradient") == Approx((5 + gradients) * value + bits));
    }
    CHECK(joins == 16);
  }
}

TEST_CASE("in 16 bits a stem with a stride is folded: stride 1, no padding, one pixel wide",
          "[cuda]") {
  ConvPlanner planner = h200();
  for (const bool training : {false, true}) {
    const ProgramPlan plan =
        plan_program(model("resnet50"), program(8, Precision::fp16, training), planner);
    REQUIRE(plan.fold.has_value());
    const ConvShape stem{.batch = 8,
                         .channels = 64,
                         .height = 115,
                         .width = 112,
                         .outputs = 64,
                         .out_height = 112,
                         .out_width = 112,
                         .kernel_height = 4};
    CHECK(plan.units[1].conv->shape == stem);
    ConvRequest request;
    request.shape = stem;
    request.precision = Precision::fp16;
    CHECK(describe(request) ==
          "forward of a 4x1 convolution, 8 x 115x112x64 -> 112x112x64, stride 1, padding 0, fp16");
    CHECK(plan.units[0].shape.channels == 64);
    CHECK(plan.units[0].shape.count() == stem.input_count());
    CHECK(plan.units[1].conv->weights_scratch == 64 * 4 * 64 * 2);
    CHECK(plan.workspace >=
          plan.units[1].conv->weights_scratch + plan.units[1].conv->forward->workspace());
  }
  CHECK_FALSE(image_fold(model("resnet50"), Precision::tf32).has_value());
  CHECK_FALSE(image_fold(model("resnet20"), Precision::fp16).has_value());
  CHECK(image_fold(test::strided_stem(32, 8, 8), Precision::fp16).has_value());
  CHECK_FALSE(image_fold(test::strided_stem(33, 8, 8), Precision::fp16).has_value());
}

TEST_CASE("every shape that the tests train has an engine in every precision", "[cuda]") {
  ConvPlanner planner = h200();
  for (const nn::Network& network : test::all_sketches())
    for (const Precision precision :
         {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16})
      for (const std::size_t batch : {1u, 3u, 6u, 7u}) {
        ProgramSpec spec = program(batch, precision);
        CHECK_NOTHROW(plan_program(network, spec, planner));
        spec.deterministic = true;
        CHECK_NOTHROW(plan_program(network, spec, planner));
      }
}

TEST_CASE("weights go to the GPU's layout and back, and padding is zero", "[cuda]") {
  const FilterShape shape{2, 3, 3, 4};
  std::vector<float> plain(shape.plain_count()), physical(shape.physical_count(), 9.f), back(54);
  std::iota(plain.begin(), plain.end(), 1.f);
  to_physical(shape, plain, physical);
  to_plain(shape, physical, back);
  CHECK(back == plain);
  // Weight of output 1, input 2, line 0, column 1.
  CHECK(physical[((1 * 3 + 0) * 3 + 1) * 4 + 2] == plain[((1 * 3 + 2) * 3 + 0) * 3 + 1]);
  for (std::size_t i = 3; i < physical.size(); i += 4) CHECK(physical[i] == 0);
}

TEST_CASE("chunks cover the arena once, and none crosses a slice's end", "[cuda]") {
  const nn::ArenaLayout layout = cuda::arena_layout(model("resnet50"));
  std::size_t at = 0;
  for (const Chunk& chunk : cut_chunks(layout)) {
    CHECK(chunk.offset == at);
    CHECK(chunk.offset % 16 == 0);
    CHECK(chunk.count % 4 == 0);
    const nn::Slice& slice = layout.slices[chunk.slice];
    CHECK(chunk.offset >= slice.offset);
    at += chunk.count;
    if (chunk.slice + 1 < layout.slices.size()) CHECK(at <= layout.slices[chunk.slice + 1].offset);
  }
  CHECK(at == layout.size);
}
