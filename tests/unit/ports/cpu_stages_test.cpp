// A network cut into stages, each compiled as its own program.
#include <algorithm>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/support/networks/stages.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

constexpr std::size_t stage_rows = 4;

/// One stage, or the whole network.
struct Stage {
  Stage(const nn::Network& network, const Case& c, Precision precision)
      : backend(make_cpu_backend({std::vector<std::vector<int>>(2)})),
        parameters(backend->make_parameters(network, precision)) {
    ProgramSpec spec;
    spec.batch = stage_rows;
    spec.precision = precision;
    spec.slots = 2;
    spec.mean = spec.stddev = std::vector<float>(c.network.input.channels, 1.f);
    program = backend->compile(network, spec, *parameters);
    for (std::size_t s = 0; s < parameters->layout().slices.size(); ++s) {
      const auto& values = c.oracle.parameters.at(parameters->layout().slices[s].tensor.name);
      parameters->import_slice(Part::weights, s, std::vector<float>(values.begin(), values.end()));
    }
  }

  void run(const Tape& tape) {
    for (const TapeStep& step : tape) step.run();
  }

  Tensors gradients() const {
    Tensors all;
    for (std::size_t s = 0; s < parameters->layout().slices.size(); ++s) {
      const nn::Tensor& tensor = parameters->layout().slices[s].tensor;
      all[tensor.name].resize(tensor.count());
      parameters->export_slice(Part::gradients, s, all[tensor.name]);
    }
    return all;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;
};

void carry(Stage&, std::span<std::byte> what, Stage&, std::span<std::byte> where) {
  REQUIRE(what.size() == where.size());
  REQUIRE_FALSE(what.empty());
  std::copy(what.begin(), what.end(), where.begin());
}

/// Two micro-batches through the stages of these networks.
std::pair<double, Tensors> through(const std::vector<nn::Network>& networks, const Case& c,
                                   Precision precision) {
  std::vector<Stage> stages;
  for (const nn::Network& network : networks) stages.emplace_back(network, c, precision);
  return test::through(stages, c, stage_rows, carry);
}

}  // namespace

TEST_CASE("stages give the loss and the gradients of the whole network, bit for bit",
          "[stages][cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, 2 * stage_rows, 3);
    const std::vector<cpu::Unit> units = cpu::lower(network);
    std::vector<std::size_t> cuts;
    for (const std::size_t unit : cpu::cut_units(network, units)) cuts.push_back(units[unit].node);
    REQUIRE_FALSE(cuts.empty());
    for (const Precision precision : cpu_formats()) {
      const auto whole = through({network}, c, precision);
      for (const std::size_t cut : cuts) {
        INFO(network.name << " after " << network.nodes[cut].name << " in "
                          << to_string(precision));
        const auto parts = through(nn::split(network, {cut}), c, precision);
        CHECK(parts.first == whole.first);
        CHECK(parts.second == whole.second);
      }
      const auto all = through(nn::split(network, cuts), c, precision);
      CHECK(all.first == whole.first);
      CHECK(all.second == whole.second);
    }
  }
}

TEST_CASE("a network can only be cut where one value is all that passes", "[stages][nn]") {
  const nn::Network network = bottlenecks();
  const std::vector<std::size_t> cuts = nn::cut_points(network);
  const auto read_by = nn::readers(network);
  for (std::size_t i = 1; i + 1 < network.nodes.size(); ++i) {
    bool passes_alone = true;  // no later node reads an earlier value
    for (std::size_t before = 0; before < i; ++before)
      for (const std::size_t reader : read_by[before]) passes_alone = passes_alone && reader <= i;
    CHECK(passes_alone == std::binary_search(cuts.begin(), cuts.end(), i));
    if (passes_alone) {
      const std::vector<nn::Network> stages = nn::split(network, {i});
      CHECK(nn::tensors(stages[0]).size() + nn::tensors(stages[1]).size() ==
            nn::tensors(network).size());
    } else {
      CHECK_THROWS_WITH(nn::split(network, {i}), Catch::Contains(network.nodes[i].name));
    }
  }
}
