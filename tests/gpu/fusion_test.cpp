// Which parts of the neighbouring batch norms the convolutions compute: decided without a GPU. And
// what that means for the tests that run on one.
#include <catch2/catch.hpp>
#include <fstream>
#include <limits>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/plan/fusion.hpp"
#include "tests/gpu/fixture.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cuda;

namespace {

PreflightSpec training_of(const std::string& model, std::size_t batch, bool fused) {
  PreflightSpec spec{
      nn::resnet(nn::usual_resnet(model, 0, 0)), {}, read_gpu_profile("jobs/gpus/h200.json")};
  spec.program.batch = batch;
  spec.program.precision = Precision::fp16;
  spec.program.fuse_norms = fused;
  spec.search_batch = false;
  return spec;
}

/// One line for each convolution: its name, what it applies, what it makes sums for; - means
/// nothing.
std::vector<std::string> lines_of(const std::vector<PreflightFusion>& fusions) {
  const auto shown = [](const std::string& name) { return name.empty() ? "-" : name; };
  std::vector<std::string> lines;
  for (const PreflightFusion& fusion : fusions)
    lines.push_back(fusion.node + " " + shown(fusion.applies) + " " + shown(fusion.sums_for));
  return lines;
}

std::vector<std::string> stored(const std::string& model) {
  std::ifstream file("tests/fixtures/fusions/" + model + ".txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

bool lockstep::test::fused_sums_repeat() { return false; }

TEST_CASE("on an H200 the convolutions of the ResNets compute the batch norms' stored values",
          "[cuda]") {
  for (const std::string model : {"resnet18", "resnet20", "resnet50"}) {
    const std::vector<std::string> want = stored(model);
    REQUIRE(!want.empty());
    for (const std::size_t batch : {8u, 128u, 256u}) {
      INFO(model << ", " << batch << " rows");
      CHECK(lines_of(preflight(training_of(model, batch, true)).fusions) == want);
    }
  }
}

TEST_CASE("fused, a step needs less memory and moves less", "[cuda]") {
  for (const char* model : {"resnet18", "resnet20", "resnet50"}) {
    double bytes[2] = {};
    std::size_t memory[2] = {};
    for (const bool fused : {false, true}) {
      const PreflightReport report = preflight(training_of(model, 64, fused));
      for (const StepFloor& step : report.steps) bytes[fused] += step.bytes;
      memory[fused] = report.memory.activations;
    }
    INFO(model);
    CHECK(bytes[1] < 0.92 * bytes[0]);
    CHECK(memory[1] < 0.88 * memory[0]);
  }
}

TEST_CASE("each convolution takes the fusion that costs least", "[cuda]") {
  const auto units = lower(nn::resnet(nn::usual_resnet("resnet18", 0, 0)));
  const auto count = [&](const FusionCost& cost) {
    std::vector<std::size_t> parts(3);
    for (const ConvFusion& fusion : fuse_norms(units, cost)) {
      parts[0] += fusion.normalised ? 1 : 0;
      parts[1] += fusion.sums ? 1 : 0;
      parts[2] += fusion.norm_gradient ? 1 : 0;
      CHECK((fusion.sums || !fusion.normalised));
    }
    return parts;
  };
  using Parts = std::vector<std::size_t>;
  const double never = std::numeric_limits<double>::infinity();
  CHECK(count([](std::size_t, const ConvFusion&) { return 1.; }) == Parts{8, 20, 8});
  CHECK(count([&](std::size_t, const ConvFusion& f) { return f.normalised ? never : 1; }) ==
        Parts{0, 20, 8});
  CHECK(count([](std::size_t, const ConvFusion& f) { return f.norm_gradient ? 3. : 2.; }) ==
        Parts{8, 20, 0});
  CHECK(count([](std::size_t, const ConvFusion& f) { return f.sums ? 2. : 1.; }) == Parts{0, 0, 8});
  CHECK(count([&](std::size_t, const ConvFusion&) { return never; }) == Parts{0, 0, 0});
}
