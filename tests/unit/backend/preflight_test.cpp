// What can be known about a GPU that is not in this machine.
#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/support/networks/flops.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using nlohmann::json;

namespace {

const char* const h200 = "jobs/gpus/h200.json";

PreflightSpec spec_of(const std::string& model, std::size_t batch, Precision precision) {
  nn::ResNetSpec network;
  network.model = model;
  const bool small = model == "resnet20";
  network.height = network.width = small ? 32 : 224;
  network.classes = small ? 10 : 1000;
  PreflightSpec spec{nn::resnet(network), {}, read_gpu_profile(h200)};
  spec.program.batch = batch;
  spec.program.precision = precision;
  return spec;
}

/// Returns nothing if the program was built without CUDA.
std::optional<PreflightReport> report_of(const PreflightSpec& spec) {
  try {
    return preflight(spec);
  } catch (const InputError& error) {
    if (std::string(error.what()).find("built without CUDA") == std::string::npos) throw;
    std::cout << "SKIPPED: " << error.what() << "\n";
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("the profiles that come with lockstep are read, and say where they are from",
          "[preflight]") {
  for (const char* name : {"a100", "h100", "h200"}) {
    const GpuProfile gpu = read_gpu_profile(std::string("jobs/gpus/") + name + ".json");
    CHECK_FALSE(gpu.name.empty());
    CHECK_FALSE(gpu.source.empty());
    REQUIRE(gpu.rates);
    CHECK(gpu.rates->of(Precision::fp16) > gpu.rates->of(Precision::fp32));
    CHECK_FALSE(json::parse(gpu.cudnn).contains("rates"));
  }
}

TEST_CASE("a profile without one of its keys is an error that names the key", "[preflight]") {
  const json whole = json::parse(read_text(h200));
  for (const auto& [key, value] : whole.items()) {
    if (key == "rates" || key == "source") continue;  // cuDNN's own files have neither
    json without = whole;
    without.erase(key);
    CHECK_THROWS_WITH(parse_gpu_profile(without.dump(), "x.json"),
                      Catch::Matchers::Contains("x.json") && Catch::Matchers::Contains(key));
    CHECK_THROWS_AS(parse_gpu_profile(without.dump(), "x.json"), InputError);
  }
  json slow = whole;
  slow["rates"].erase("bandwidth");
  CHECK_THROWS_WITH(parse_gpu_profile(slow.dump(), "x.json"),
                    Catch::Matchers::Contains("\"bandwidth\""));
  json odd = whole;
  odd["multiProcessorCount"] = "many";
  CHECK_THROWS_AS(parse_gpu_profile(odd.dump(), "x.json"), InputError);
  CHECK_THROWS_AS(parse_gpu_profile("[]", "x.json"), InputError);
  CHECK_THROWS_AS(parse_gpu_profile("{", "x.json"), InputError);
}

TEST_CASE("every convolution of the ResNets has an engine on an H200", "[preflight]") {
  const std::string model = GENERATE("resnet20", "resnet18", "resnet34", "resnet50", "resnet101");
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    for (const bool deterministic : {false, true}) {
      PreflightSpec spec = spec_of(model, 64, precision);
      spec.program.deterministic = deterministic;
      spec.search_batch = false;
      const auto report = report_of(spec);
      if (!report) return;
      for (const PreflightConv& conv : report->convolutions) {
        INFO(conv.node << ": " << conv.what << ": " << conv.engine);
        CHECK(conv.possible);
      }
      CHECK(report->possible);
    }
  }
}

TEST_CASE("a step's operations are three forward passes without the image's gradient",
          "[preflight]") {
  PreflightSpec spec = spec_of("resnet50", 8, Precision::fp16);
  spec.search_batch = false;
  const auto report = report_of(spec);
  if (!report) return;
  double matrix = 0, shortest_ms = 0;
  for (const StepFloor& step : report->steps) {
    shortest_ms += step.shortest_ms;
    const bool conv = step.name.find("conv") != std::string::npos ||
                      step.name.find("downsample.0") != std::string::npos ||
                      step.name.find("fc") != std::string::npos;
    if (conv) matrix += step.flops;
  }
  // The image's channels count as padded from 3 to 4 in the two passes of the first convolution.
  const double forward = 8 * test::forward_flops(spec.network);
  const double stem = 8 * 2.0 * 112 * 112 * 64 * 7 * 7;
  CHECK(matrix == Approx(3 * forward - 3 * stem + 2 * stem).epsilon(1e-6));
  CHECK(shortest_ms > 0);
}

TEST_CASE("memory grows with the batch, and the largest that fits does", "[preflight]") {
  PreflightSpec spec = spec_of("resnet50", 64, Precision::bf16);
  spec.gpu.memory = 16e9;
  const auto report = report_of(spec);
  if (!report) return;
  CHECK(report->memory.activations < report->memory.without_reuse);
  CHECK(report->largest_batch >= 64);
  spec.program.batch = report->largest_batch;
  spec.search_batch = false;
  const auto largest = report_of(spec);
  CHECK(static_cast<double>(largest->memory.total()) <= spec.gpu.memory);
  CHECK(static_cast<double>(largest->memory.total()) > 0.8 * spec.gpu.memory);
}
