// Several micro-batches in flight in one program.
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

constexpr std::size_t slot_rows = 3, parts = 3;

/// A network's gradients and statistics after some micro-batches, each step of the schedule being
/// the forward or the backward of one of them.
struct Flight {
  struct Pass {
    bool backward;
    std::size_t part;
  };

  Flight(const Case& c, std::size_t slots, const Recompute& recompute)
      : backend(make_cpu_backend({std::vector<std::vector<int>>(2)})),
        parameters(backend->make_parameters(c.network, Precision::fp32)) {
    ProgramSpec spec;
    spec.batch = slot_rows;
    spec.slots = slots;
    spec.recompute = recompute;
    spec.mean = spec.stddev = std::vector<float>(c.network.input.channels, 1.f);
    program = backend->compile(c.network, spec, *parameters);
    images.assign(c.images.begin(), c.images.end());
    for (std::size_t s = 0; s < parameters->layout().slices.size(); ++s) {
      const auto& values = c.oracle.parameters.at(parameters->layout().slices[s].tensor.name);
      const std::vector<float> plain(values.begin(), values.end());
      parameters->import_slice(Part::weights, s, plain);
    }
  }

  void run(const Case& c, const std::vector<Pass>& schedule) {
    const std::size_t values = slot_rows * c.network.input.count();
    bool accumulate = false;
    for (const Pass& pass : schedule) {
      program->select(pass.part % program->spec().slots);
      if (!pass.backward) {
        // Each part has another share of the step's rows.
        program->set_scalars({.lr = 0,
                              .gradient_scale = 1.f / static_cast<float>(2 + pass.part),
                              .statistics_share = 0.5f / static_cast<float>(1 + pass.part)});
        program->load_normalised({images.data() + pass.part * values, values},
                                 {c.targets.data() + pass.part * slot_rows, slot_rows});
        for (const TapeStep& step : program->forward()) step.run();
        logits.emplace_back(slot_rows * c.network.classes);
        program->copy_logits(logits.back());
        continue;
      }
      for (const TapeStep& step : program->backward(accumulate)) step.run();
      accumulate = true;
    }
    loss = program->take_metrics().loss;
    for (std::size_t s = 0; s < parameters->layout().slices.size(); ++s) {
      gradients.emplace_back(parameters->layout().slices[s].tensor.count());
      parameters->export_slice(Part::gradients, s, gradients.back());
    }
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;
  std::vector<float> images;
  std::vector<std::vector<float>> logits, gradients;
  double loss = 0;
};

}  // namespace

TEST_CASE("micro-batches in flight give the gradients of one after the other, bit for bit",
          "[slots][cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, parts * slot_rows);
    for (const bool again : {false, true}) {
      Recompute recompute;
      if (again) recompute = {.mode = Recompute::Mode::segments, .segments = 2};
      Flight alone(c, 1, recompute), together(c, parts, recompute);
      alone.run(c, {{false, 0}, {true, 0}, {false, 1}, {true, 1}, {false, 2}, {true, 2}});
      together.run(c, {{false, 0}, {false, 1}, {true, 0}, {false, 2}, {true, 1}, {true, 2}});
      INFO(network.name << (again ? ", making values again" : ""));
      CHECK(together.gradients == alone.gradients);
      CHECK(together.logits == alone.logits);
      CHECK(together.loss == alone.loss);
      CHECK(together.program->memory().activations > alone.program->memory().activations);
      CHECK(together.program->memory().activations < parts * alone.program->memory().activations);
    }
  }
}

TEST_CASE("a slot that a program does not have is an error", "[slots][cpu]") {
  const Case c(plain(), slot_rows, 1);
  Flight flight(c, 2, {});
  flight.program->select(1);
  CHECK_THROWS_WITH(flight.program->select(2), Catch::Contains("2 slots has no slot 2"));
}
