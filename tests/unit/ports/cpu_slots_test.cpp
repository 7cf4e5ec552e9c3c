// Several micro-batches in flight in one program.
#include <algorithm>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/support/networks/stages.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

constexpr std::size_t slot_rows = 3, parts = 3;

/// A network's gradients and statistics after some micro-batches, each step of the schedule being
/// the forward or the backward of one of them.
struct Flight {
  enum class Do { forward, backward, weights };
  struct Pass {
    Do what;
    std::size_t part;
  };

  Flight(const Case& c, std::size_t slots, const Recompute& recompute, std::size_t later = 0,
         std::size_t threads = 2, Precision precision = Precision::fp32)
      : backend(make_cpu_backend({std::vector<std::vector<int>>(threads)})),
        parameters(backend->make_parameters(c.network, precision)) {
    ProgramSpec spec;
    spec.precision = precision;
    spec.weights_later = later;
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
    for (const Pass& pass : schedule) {
      program->select(pass.part % program->spec().slots);
      if (pass.what == Do::forward) {
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
      const bool adds = pass.part > 0;
      for (const TapeStep& step :
           pass.what == Do::backward ? program->backward(adds) : program->weight_gradients(adds))
        step.run();
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

const std::vector<Flight::Pass> in_turn{{Flight::Do::forward, 0}, {Flight::Do::backward, 0},
                                        {Flight::Do::forward, 1}, {Flight::Do::backward, 1},
                                        {Flight::Do::forward, 2}, {Flight::Do::backward, 2}};

}  // namespace

TEST_CASE("weight gradients that come later are the same, bit for bit", "[slots][cpu]") {
  using enum Flight::Do;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, parts * slot_rows, 1);
    for (const Precision precision : cpu_formats())
      for (const std::size_t threads : {1u, 2u, 5u}) {  // the last: bands of lines
        INFO(network.name << " in " << to_string(precision) << " on " << threads << " threads");
        Flight alone(c, 1, {}, 0, threads, precision), later(c, parts, {}, 2, threads, precision);
        alone.run(c, in_turn);
        later.run(c, {{forward, 0},
                      {forward, 1},
                      {backward, 0},
                      {forward, 2},
                      {backward, 1},
                      {weights, 0},
                      {backward, 2},
                      {weights, 1},
                      {weights, 2}});
        CHECK(later.gradients == alone.gradients);
        CHECK(later.logits == alone.logits);
        CHECK(later.loss == alone.loss);
      }
  }
}

TEST_CASE("each slice is final once, a convolution's weights when their gradients come later",
          "[slots][cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, slot_rows, 1);
    const auto final_in = [](const Tape& tape) {
      std::vector<std::size_t> all;
      for (const TapeStep& step : tape)
        all.insert(all.end(), step.final_slices.begin(), step.final_slices.end());
      return all;
    };
    Flight usual(c, 2, {}), apart(c, 2, {}, 2);
    std::vector<std::size_t> all = final_in(apart.program->backward(false));
    const std::vector<std::size_t> late = final_in(apart.program->weight_gradients(false));
    for (const std::size_t slice : late)
      CHECK(apart.parameters->layout().slices[slice].tensor.role == nn::Role::conv_weight);
    all.insert(all.end(), late.begin(), late.end());
    std::vector<std::size_t> expected = final_in(usual.program->backward(false));
    for (auto* one : {&all, &expected}) std::ranges::sort(*one);
    INFO(network.name);
    CHECK(all == expected);
    CHECK_FALSE(late.empty());
    CHECK(usual.program->weight_gradients(false).empty());
  }
}

TEST_CASE("more micro-batches without their weight gradients than there is room for are an error",
          "[slots][cpu]") {
  using enum Flight::Do;
  const Case c(plain(), parts * slot_rows, 1);
  Flight flight(c, parts, {}, 1);
  CHECK_THROWS_WITH(flight.run(c, {{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}}),
                    Catch::Contains("more than 1 micro-batch wait"));
}

TEST_CASE("micro-batches in flight give the gradients of one after the other, bit for bit",
          "[slots][cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, parts * slot_rows, 1);
    for (const bool again : {false, true}) {
      Recompute recompute;
      if (again) recompute = {.mode = Recompute::Mode::segments, .segments = 2};
      Flight alone(c, 1, recompute), together(c, parts, recompute);
      using enum Flight::Do;
      alone.run(c, in_turn);
      together.run(
          c,
          {{forward, 0}, {forward, 1}, {backward, 0}, {forward, 2}, {backward, 1}, {backward, 2}});
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
