// Norms, clipping and the average over the CPU's arena, against plain loops in double precision.
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/kernels/kernel_sets.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

float drawn(std::uint64_t i, std::uint64_t seed) {
  return 2 * unit(philox(seed, i, 0).word[0]) - 1;
}

/// ResNet-20's parameters, with slices of 10 to 36,864 values, filled by seed.
struct State {
  explicit State(std::size_t threads)
      : backend(make_cpu_backend({std::vector<std::vector<int>>(threads)})),
        network(nn::resnet(nn::usual_resnet("resnet20", 16, 10))),
        parameters(backend->make_parameters(network, Precision::fp32)) {
    fill(Part::weights, 1);
    fill(Part::gradients, 2);
  }
  const std::vector<nn::Slice>& slices() const { return parameters->layout().slices; }
  void fill(Part part, std::uint64_t seed) {
    for (std::size_t s = 0; s < slices().size(); ++s) {
      std::vector<float> plain(slices()[s].tensor.count());
      for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = drawn(i, 100 * seed + s);
      parameters->import_slice(part, s, plain);
    }
  }
  std::vector<float> plain(Part part, std::size_t s) const {
    std::vector<float> values(slices()[s].tensor.count());
    parameters->export_slice(part, s, values);
    return values;
  }
  std::vector<std::vector<float>> all(Part part) const {
    std::vector<std::vector<float>> values;
    for (std::size_t s = 0; s < slices().size(); ++s) values.push_back(plain(part, s));
    return values;
  }
  std::unique_ptr<Backend> backend;
  nn::Network network;
  std::unique_ptr<Parameters> parameters;
};

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * double{v};
  return std::sqrt(sum);
}

double learned_norm(const State& state) {
  double sum = 0;
  for (std::size_t s = 0; s < state.parameters->layout().learned_slices; ++s)
    sum += std::pow(norm_of(state.plain(Part::gradients, s)), 2);
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("a slice's norm is the plain sum's, and its bits do not depend on the threads",
          "[arena]") {
  const State one(1);
  for (const Part part : {Part::weights, Part::gradients}) {
    const std::vector<double> norms = one.backend->norms(*one.parameters, part);
    REQUIRE(norms.size() == one.slices().size());
    for (std::size_t s = 0; s < norms.size(); ++s) {
      INFO(one.slices()[s].tensor.name);
      CHECK(std::abs(norms[s] - norm_of(one.plain(part, s))) <= 1e-13 * norms[s]);
    }
    for (const std::size_t threads : {2u, 3u, 5u}) {
      const State more(threads);
      CHECK(more.backend->norms(*more.parameters, part) == norms);
    }
  }
  CHECK_THROWS_AS(one.backend->norms(*one.parameters, Part::average), Error);
}

TEST_CASE("a sum of squares has the same bits with every instruction set", "[arena]") {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e19f * drawn(i, 3);
  for (const std::size_t count : {0u, 1u, 15u, 16u, 33u, 1000u}) {
    double want = 0;
    for (std::size_t i = 0; i < count; ++i) want += double{values[i]} * double{values[i]};
    const double usual = cpu::plain_set.floats.squares(values.data(), count);
    CHECK(std::abs(usual - want) <= 1e-14 * want);
    for (const cpu::KernelSet& set : cpu::kernel_sets())
      CHECK(set.floats.squares(values.data(), count) == usual);
  }
}

TEST_CASE("clipped gradients are PyTorch's: all times limit / (norm + 1e-6), if that is below 1",
          "[arena]") {
  const std::size_t threads = GENERATE(1u, 2u);
  State state(threads);
  const double norm = learned_norm(state);
  const auto before = state.all(Part::gradients);
  CHECK(state.parameters->clipped_norm() == 0);

  state.backend->clip_gradients(*state.parameters, static_cast<float>(norm * 1.01));
  CHECK(state.all(Part::gradients) == before);
  CHECK(state.parameters->clipped_norm() == Approx(norm).epsilon(1e-12));

  const float limit = 0.5f;
  state.backend->clip_gradients(*state.parameters, limit);
  CHECK(state.parameters->clipped_norm() == Approx(norm).epsilon(1e-12));
  const std::size_t learned = state.parameters->layout().learned_slices;
  const double factor = double{limit} / (norm + 1e-6);
  for (std::size_t s = 0; s < state.slices().size(); ++s) {
    const std::vector<float> after = state.plain(Part::gradients, s);
    double apart = 0;
    for (std::size_t i = 0; i < after.size(); ++i)
      apart = std::max(apart, std::abs(after[i] - before[s][i] * (s < learned ? factor : 1)));
    INFO(state.slices()[s].tensor.name);
    CHECK(apart <= 1e-7 * factor);
  }
  CHECK(learned_norm(state) == Approx(limit).epsilon(1e-5));
}

TEST_CASE("gradients that are not numbers are not clipped to numbers", "[arena]") {
  State state(1);
  std::vector<float> values = state.plain(Part::gradients, 3);
  values.back() = GENERATE(NAN, INFINITY);
  state.parameters->import_slice(Part::gradients, 3, values);
  state.backend->clip_gradients(*state.parameters, 1);
  CHECK_FALSE(std::isfinite(state.parameters->clipped_norm()));
  CHECK(std::isnan(state.plain(Part::gradients, 3).back()));
}

TEST_CASE("the average is the recurrence in double precision, running statistics included",
          "[arena]") {
  const std::size_t threads = GENERATE(1u, 3u);
  State state(threads);
  CHECK_FALSE(state.parameters->has_average());
  CHECK_THROWS_AS(state.backend->update_average(*state.parameters, 0.5f), Error);
  CHECK_THROWS_AS(state.backend->swap_average(*state.parameters), Error);
  const std::uint32_t without = state.parameters->hash();
  state.parameters->start_average();
  REQUIRE(state.parameters->has_average());
  CHECK(state.all(Part::average) == state.all(Part::weights));
  CHECK(state.parameters->hash() != without);

  std::vector<std::vector<double>> want;
  for (const auto& values : state.all(Part::weights))
    want.emplace_back(values.begin(), values.end());
  for (const float share : {0.9f, 0.1f, 0.001f}) {
    state.fill(Part::weights, static_cast<std::uint64_t>(1000 * share));
    state.backend->update_average(*state.parameters, share);
    const auto weights = state.all(Part::weights), got = state.all(Part::average);
    double apart = 0;
    for (std::size_t s = 0; s < want.size(); ++s)
      for (std::size_t i = 0; i < want[s].size(); ++i) {
        want[s][i] = (1 - double{share}) * want[s][i] + double{share} * weights[s][i];
        apart = std::max(apart, std::abs(got[s][i] - want[s][i]));
      }
    CHECK(apart <= 3e-7);
  }
}

TEST_CASE("weights and average are exchanged, and back, bit for bit", "[arena]") {
  State state(2);
  state.parameters->start_average();
  state.fill(Part::weights, 7);
  const auto weights = state.all(Part::weights), average = state.all(Part::average);
  const std::uint32_t hash = state.parameters->hash();
  state.backend->swap_average(*state.parameters);
  CHECK(state.all(Part::weights) == average);
  CHECK(state.all(Part::average) == weights);
  state.backend->swap_average(*state.parameters);
  CHECK(state.parameters->hash() == hash);
}

TEST_CASE("an average of equal values stays equal, bit for bit", "[arena]") {
  State state(1);
  state.parameters->start_average();
  const std::uint32_t hash = state.parameters->hash();
  for (int step = 0; step < 10; ++step) state.backend->update_average(*state.parameters, 0.3f);
  CHECK(state.parameters->hash() == hash);
}
