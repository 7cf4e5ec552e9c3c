// LARS, LAMB and Muon on the GPU's backend, against the published formulas.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/laws/rules.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

/// A state in fp16 with this loss scale, and steps of LAMB by gradients that are all `value`.
struct Stepped {
  Stepped(const nn::Network& network, float scale)
      : parameters(backend->make_parameters(network, Precision::fp16)),
        rule{.formula = optim::Lamb{}, .weight_decay = {}} {
    parameters->start_second_moments();
    parameters->set_loss_scale({scale, 0, 0, 0});
    const nn::ArenaLayout& layout = parameters->layout();
    rule.weight_decay.assign(layout.slices.size(), 0.01f);
    rule.adaptive.assign(layout.slices.size(), 1);
    fill(Part::weights, 0.5f);
  }
  void fill(Part part, float value) {
    for (std::size_t s = 0; s < parameters->layout().learned_slices; ++s)
      parameters->import_slice(
          part, s, std::vector<float>(parameters->layout().slices[s].tensor.count(), value));
  }
  void step(float value, std::uint64_t steps_done) {
    fill(Part::gradients, value);
    backend->judge_gradients(*parameters);
    backend->update(*parameters, rule, {.lr = 0.01f, .steps_done = steps_done}, 0,
                    parameters->layout().learned_slices);
  }
  std::unique_ptr<Backend> backend = make_cuda_backend(0);
  std::unique_ptr<Parameters> parameters;
  optim::UpdateRule rule;
};

}  // namespace

TEST_CASE("on a GPU, too, 50 steps of each rule are the published formula's", "[rules]") {
  const auto backend = make_cuda_backend(0);
  check_rules(*backend, bottlenecks());
  check_rules(*backend, wide());
}

TEST_CASE("a step of LAMB that overflows changes nothing and is not counted", "[rules]") {
  Stepped skipped(plain(), 1024), never(plain(), 512);
  const std::uint32_t before = skipped.parameters->hash();
  skipped.step(INFINITY, 0);
  CHECK(skipped.parameters->hash() == before);
  CHECK(skipped.parameters->loss_scale()->skipped == 1);
  CHECK_FALSE(skipped.parameters->trust_ratios().has_value());
  for (std::uint64_t t = 0; t < 3; ++t) {
    skipped.step(1.f + static_cast<float>(t), t + 1);
    never.step(1.f + static_cast<float>(t), t);
    CHECK(skipped.parameters->hash() == never.parameters->hash());
    CHECK(skipped.parameters->hash() != before);
  }
  CHECK(skipped.parameters->trust_ratios().has_value());
}
