// Norms, clipping and the average on a GPU, compared with the CPU.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/gpu/fixture.hpp"
#include "tests/support/laws/rules.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

std::unique_ptr<Backend> two_threads() {
  return make_cpu_backend({std::vector<std::vector<int>>(2)});
}

void near(const Compiled& got, const Compiled& want, Part part, double tolerance) {
  const auto& slices = want.parameters->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::vector<float> wanted = want.exported(part, s);
    double size = 0;
    for (const float v : wanted) size += std::abs(v);
    INFO(slices[s].tensor.name);
    if (size > 0)
      CHECK(distance(got.exported(part, s), {wanted.begin(), wanted.end()}) <= tolerance);
  }
}

}  // namespace

TEST_CASE("a step with clipped gradients and an average is the CPU's", "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Compiled device(c, 3, gpu(), Precision::fp32), host(c, 3, two_threads(), Precision::fp32);
    const nn::ArenaLayout& layout = host.parameters->layout();
    const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f, .nesterov = true},
                                 .weight_decay = std::vector<float>(layout.slices.size(), 1e-3f)};
    const optim::StepScalars scalars{.lr = 0.1f, .gradient_scale = 1, .statistics_share = 1};
    for (Compiled* each : {&device, &host}) {
      Backend& backend = *each->backend;
      Parameters& parameters = *each->parameters;
      parameters.start_average();
      each->run(c, 0, false);
      backend.judge_gradients(parameters);
      backend.clip_gradients(parameters, 0.01f);
      backend.update(parameters, rule, scalars, 0, layout.learned_slices);
      backend.update_statistics(parameters, 1);
      backend.update_average(parameters, 0.25f);
    }
    CHECK(device.parameters->clipped_norm() ==
          Approx(host.parameters->clipped_norm()).epsilon(1e-4));
    for (const Part part : {Part::weights, Part::momentum, Part::average})
      near(device, host, part, 3e-5);
    const std::uint32_t hash = device.parameters->hash();
    for (Compiled* each : {&device, &host}) each->backend->swap_average(*each->parameters);
    near(device, host, Part::weights, 3e-5);
    CHECK(device.run(c, 0, false) == Approx(host.run(c, 0, false)).epsilon(1e-4));
    device.backend->swap_average(*device.parameters);
    CHECK(device.parameters->hash() == hash);
  }
}

TEST_CASE("a LARS step is the CPU's", "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Compiled device(c, 3, gpu(), Precision::fp32), host(c, 3, two_threads(), Precision::fp32);
    const nn::ArenaLayout& layout = host.parameters->layout();
    optim::UpdateRule rule{.formula = optim::Lars{.nesterov = true, .coefficient = 0.02f},
                           .weight_decay = std::vector<float>(layout.slices.size(), 1e-2f)};
    for (const nn::Slice& slice : layout.slices)
      rule.adaptive.push_back(slice.tensor.role == nn::Role::conv_weight ? 1.f : 0.f);
    for (Compiled* each : {&device, &host}) {
      each->run(c, 0, false);
      each->backend->update(*each->parameters, rule,
                            {.lr = 2, .gradient_scale = 1, .statistics_share = 1}, 0,
                            layout.learned_slices);
    }
    for (const Part part : {Part::weights, Part::momentum}) near(device, host, part, 3e-5);
  }
}

TEST_CASE("50 steps of each update rule on the GPU are the published formula's", "[gpu]") {
  if (!gpu()) return;
  check_rules(*gpu(), bottlenecks());
}

TEST_CASE("norms on the GPU are the plain sums and have the same bits each time", "[gpu]") {
  if (!gpu()) return;
  const Case c(bottlenecks(), 6, 5);
  Compiled device(c, 6, gpu(), Precision::fp32);
  device.run(c, 0, false);
  for (const Part part : {Part::weights, Part::gradients}) {
    const std::vector<double> norms = device.backend->norms(*device.parameters, part);
    REQUIRE(norms.size() == device.parameters->layout().slices.size());
    for (std::size_t s = 0; s < norms.size(); ++s) {
      double squares = 0;
      for (const float v : device.exported(part, s)) squares += double{v} * double{v};
      CHECK(norms[s] == Approx(std::sqrt(squares)).epsilon(1e-12));
    }
    for (int again = 0; again < 5; ++again)
      CHECK(device.backend->norms(*device.parameters, part) == norms);
  }
}

TEST_CASE("a step that overflows leaves the average, in fp16", "[gpu]") {
  if (!gpu()) return;
  const Case c = settled_case(plain(), 3);
  Compiled device(c, 3, gpu(), Precision::fp16);
  Parameters& parameters = *device.parameters;
  parameters.set_loss_scale({1024, 0, 0, 0});
  parameters.start_average();
  device.run(c, 0, false);
  const std::vector<float> ones(parameters.layout().slices[0].tensor.count(), 1);
  parameters.import_slice(Part::average, 0, ones);
  const std::vector<float> good = device.exported(Part::gradients, 0);
  for (const bool overflow : {true, false}) {
    std::vector<float> gradient = good;
    if (overflow) gradient.back() = INFINITY;
    parameters.import_slice(Part::gradients, 0, gradient);
    device.backend->judge_gradients(parameters);
    device.backend->update_average(parameters, 0.5f);
    CHECK((device.exported(Part::average, 0) == ones) == overflow);
  }
}
