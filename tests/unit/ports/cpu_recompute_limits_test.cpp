// Whatever a number of segments reaches, --recompute auto reaches within as much memory; and what a
// process has in memory next to a step's parameters and values is measured by running it.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/parameters.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "ports/cpu/program.hpp"
#include "tests/support/harness/sanitized.hpp"

using namespace lockstep;
using namespace lockstep::backend;

namespace {

constexpr double mebibyte = 1 << 20;

ProgramSpec training(const nn::Network& network, std::size_t batch, const Recompute& recompute) {
  ProgramSpec spec;
  spec.batch = batch;
  spec.recompute = recompute;
  spec.mean = spec.stddev = std::vector<float>(network.input.channels, 0.5f);
  return spec;
}

std::unique_ptr<Backend> two_threads() {
  return make_cpu_backend({std::vector<std::vector<int>>(2)});
}

struct Planned {
  MemoryPlan plan;
  std::size_t peak = 0;  ///< bytes of the parameters, the values and the scratch
};

/// The plan of a program; nothing is computed.
Planned planned(const nn::Network& network, std::size_t batch, const Recompute& recompute) {
  const auto backend = two_threads();
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  const MemoryPlan plan =
      backend->compile(network, training(network, batch, recompute), *parameters)->memory();
  return {plan, 3 * sizeof(float) * parameters->layout().size + plan.activations + plan.workspace};
}

/// The bytes that a process has besides parameters and values.
double beside(const nn::Network& network, std::size_t batch) {
  const ProgramSpec spec = training(network, batch, {});
  return static_cast<double>(two_threads()->measure_memory(network, {&spec, 1}).value());
}

}  // namespace

TEST_CASE("what any number of segments needs is enough for --recompute auto, and is kept",
          "[recompute][cpu][slow][large]") {
  const auto* model = GENERATE("resnet18", "resnet50");
  const auto batch = GENERATE(std::size_t{2}, std::size_t{8}, std::size_t{32});
  const nn::Network network = nn::resnet(nn::usual_resnet(model, 64, 10));
  const std::size_t most = cpu::cut_units(network, cpu::lower(network)).size() + 1;
  CHECK(most > 5);
  for (std::size_t number = 1; number <= most; ++number) {
    const Planned wanted =
        planned(network, batch, {.mode = Recompute::Mode::segments, .segments = number});
    const std::size_t limit = wanted.peak + wanted.peak / 50;
    INFO(model << ", batch " << batch << ", " << number << " segments: " << wanted.peak);
    Planned found;
    REQUIRE_NOTHROW(found = planned(network, batch,
                                    {.mode = Recompute::Mode::automatic, .memory_limit = limit}));
    CHECK(found.peak <= limit);
    CHECK(found.plan.made_again <= 1);
  }
}

TEST_CASE("what a process has besides parameters and values does not grow with the batch",
          "[recompute][cpu]") {
  if (test::sanitized()) {
    std::cout << "SKIPPED: a sanitizer keeps what was freed\n";
    return;
  }
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 32, 10));
  beside(network, 64);  // the library's code is there from now on
  const double few = beside(network, 16), many = beside(network, 64);
  INFO(few << " bytes with 16 rows, " << many << " with 64");
  CHECK(std::abs(many - few) <= 4 * mebibyte);
  // But what the process holds counts.
  const cpu::HostMemory held(std::size_t{64} << 20);
  std::memset(held.data(), 1, std::size_t{64} << 20);
  CHECK(std::abs(beside(network, 64) - many - 64 * mebibyte) <= 4 * mebibyte);
}

TEST_CASE("no number of segments takes less than the plan of the least memory",
          "[recompute][cpu]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 32, 10));
  const std::size_t least = planned(network, 32, {.mode = Recompute::Mode::least}).plan.activations;
  CHECK(least > 0);
  for (std::size_t number = 1; number <= 8; ++number)
    CHECK(planned(network, 32, {.mode = Recompute::Mode::segments, .segments = number})
              .plan.activations >= least);
}

TEST_CASE("scratch that was measured is not counted a second time", "[recompute][cpu]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 32, 10));
  const std::size_t scratch = planned(network, 32, {}).plan.workspace;
  const auto smallest = [&](bool was_measured) -> std::size_t {
    try {
      planned(network, 32,
              {.mode = Recompute::Mode::automatic,
               .memory_limit = 1,
               .reserved = 5000,
               .scratch_reserved = was_measured});
    } catch (const InputError& error) {
      const std::string said = error.what(), before = "at least ";
      return std::stoull(said.substr(said.find(before) + before.size()));
    }
    return 0;
  };
  CHECK(scratch > 0);
  CHECK(smallest(false) == smallest(true) + scratch);
}
