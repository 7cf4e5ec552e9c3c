// Which parts of the neighbouring batch norms the convolutions compute: decided without a GPU.
#include <catch2/catch.hpp>
#include <fstream>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/plan/fusion.hpp"

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

TEST_CASE("where no engine applies a batch norm, the convolution makes the sums or nothing",
          "[cuda]") {
  const auto units = lower(nn::resnet(nn::usual_resnet("resnet18", 0, 0)));
  const auto count = [&](const CanFuse& possible) {
    std::size_t applied = 0, sums = 0;
    for (const ConvFusion& fusion : fuse_norms(units, possible)) {
      applied += fusion.normalised ? 1 : 0;
      sums += fusion.sums ? 1 : 0;
      CHECK((fusion.sums || !fusion.normalised));
    }
    return std::pair(applied, sums);
  };
  CHECK(count([](std::size_t, const ConvFusion&) { return true; }) ==
        std::pair<std::size_t, std::size_t>(8, 20));
  CHECK(count([](std::size_t, const ConvFusion& f) { return !f.normalised; }) ==
        std::pair<std::size_t, std::size_t>(0, 20));
  CHECK(count([](std::size_t, const ConvFusion&) { return false; }) ==
        std::pair<std::size_t, std::size_t>(0, 0));
}
