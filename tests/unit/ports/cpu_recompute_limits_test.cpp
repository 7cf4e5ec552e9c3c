// Whatever a number of segments reaches, --recompute auto reaches within as much memory.
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "ports/cpu/program.hpp"

using namespace lockstep;
using namespace lockstep::backend;

namespace {

struct Planned {
  std::size_t peak = 0;  ///< bytes of the parameters, the values and the scratch
  double made_again = 0;
};

/// The plan of a program; nothing is computed.
Planned planned(const nn::Network& network, std::size_t batch, const Recompute& recompute) {
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  ProgramSpec spec;
  spec.batch = batch;
  spec.recompute = recompute;
  spec.mean = spec.stddev = std::vector<float>(network.input.channels, 0.5f);
  const MemoryPlan plan = backend->compile(network, spec, *parameters)->memory();
  return {3 * sizeof(float) * parameters->layout().size + plan.activations + plan.workspace,
          plan.made_again};
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
    CHECK(found.made_again <= 1);
  }
}
