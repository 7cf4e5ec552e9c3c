// Evaluation, whose batch norms are folded into the convolutions, compared with the oracle.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/kernels/kernels.hpp"
#include "ports/cpu/plan/lowering.hpp"
#include "tests/support/networks/evaluation.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

TEST_CASE("evaluation gives the oracle's logits, every node", "[cpu][evaluation]") {
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const std::size_t threads = GENERATE(1u, 2u, 3u);
  const std::size_t chunk_bytes = GENERATE(1u, 1u << 20);  // the smallest cut images into stripes
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Evaluation evaluation(c, 3,
                          {.winograd = winograd, .threads = threads, .chunk_bytes = chunk_bytes});
    CHECK(distance(evaluation.logits(c), c.oracle.logits()) <= 1e-5);
  }
}

TEST_CASE("evaluation gives the oracle's logits where lanes share the rows", "[cpu][evaluation]") {
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const std::size_t rows = GENERATE(1u, 3u), threads = GENERATE(4u, 7u);
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Evaluation evaluation(c, rows, {.winograd = winograd, .threads = threads});
    std::vector<double> want = c.oracle.logits();
    want.resize(rows * network.classes);
    for (int twice = 0; twice < 2; ++twice) CHECK(distance(evaluation.logits(c), want) <= 1e-5);
  }
}

TEST_CASE("in bf16 evaluation gives the oracle's logits within its rounding", "[cpu][evaluation]") {
  if (!has_bf16()) return;
  const std::size_t threads = GENERATE(2u, 5u);  // of 5, lanes share the rows
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Evaluation evaluation(c, 3,
                          {.precision = Precision::bf16, .winograd = winograd, .threads = threads});
    CHECK(distance(evaluation.logits(c), c.oracle.logits()) <= 0.03);
  }
}

TEST_CASE("a linear layer's sums have the same bits, whatever rows and outputs a call makes",
          "[cpu][evaluation]") {
  constexpr std::size_t rows = 7, inputs = 80, outputs = 11;
  const auto random = [](std::size_t count, std::uint64_t seed) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(draw(seed, 0, i, Draw::synth) % 2001) / 1000 - 1);
    return values;
  };
  const std::vector<float> x = random(rows * inputs, 1), w = random(outputs * inputs, 2),
                           bias = random(outputs, 3);
  const auto make = [&](std::size_t row, std::size_t count, std::size_t first, std::size_t last,
                        std::vector<float>& y) {
    cpu::float_kernels().linear({.x = x.data() + row * inputs,
                                 .weights = w.data(),
                                 .bias = bias.data(),
                                 .rows = count,
                                 .inputs = inputs,
                                 .first = first,
                                 .last = last,
                                 .y = y.data() + row * outputs,
                                 .y_row = outputs});
  };
  std::vector<float> whole(rows * outputs), parts(rows * outputs);
  make(0, rows, 0, outputs, whole);
  for (std::size_t row = 0; row < rows; ++row) {
    make(row, 1, 0, 3, parts);
    make(row, 1, 3, outputs, parts);
  }
  CHECK(parts == whole);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t k = 0; k < outputs; ++k) {
      double want = bias[k];
      for (std::size_t i = 0; i < inputs; ++i)
        want += static_cast<double>(x[row * inputs + i]) * w[k * inputs + i];
      CHECK(whole[row * outputs + k] == Approx(want).margin(1e-5));
    }
}

TEST_CASE("programs of several sizes share folded weights, and see new ones", "[cpu][evaluation]") {
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const Case c = settled_case(plain(), 4);
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  const auto weights = backend->make_parameters(c.network, Precision::fp32, Keeps::weights);
  const auto training = Compiled(c, 4, make_cpu_backend({}), Precision::fp32);
  for (std::size_t s = 0; s < weights->layout().slices.size(); ++s)
    weights->import_slice(Part::weights, s, training.exported(Part::weights, s));
  ProgramSpec spec = training.program->spec();
  spec.training = false;
  spec.winograd.mode = winograd;
  std::vector<std::unique_ptr<Program>> programs;
  for (const std::size_t rows : {1u, 4u}) {
    spec.batch = rows;
    programs.push_back(backend->compile(c.network, spec, *weights));
  }
  const auto row = [&](std::size_t of) {
    const std::vector<float> logits = forward_logits(*programs[of], c);
    return std::vector<double>(logits.begin(),
                               logits.begin() + static_cast<std::ptrdiff_t>(c.network.classes));
  };
  const auto as_floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<double> one = row(0);
  CHECK(distance(as_floats(row(1)), one) <= 1e-6);
  const auto& slices = weights->layout().slices;
  const auto conv = std::ranges::find(slices, nn::Role::conv_weight,
                                      [](const nn::Slice& slice) { return slice.tensor.role; });
  const auto s = static_cast<std::size_t>(conv - slices.begin());
  std::vector<float> changed = training.exported(Part::weights, s);
  for (float& value : changed) value *= 1.5f;
  weights->import_slice(Part::weights, s, changed);
  const std::vector<double> other = row(1);
  CHECK(distance(as_floats(other), one) > 1e-3);
  CHECK(distance(as_floats(row(0)), other) <= 1e-6);
}

TEST_CASE("evaluation sees changed weights, and survives training in the same memory",
          "[cpu][evaluation]") {
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const Case c = settled_case(bottlenecks(), 3);
  Evaluation evaluation(c, 3, {.winograd = winograd});
  const std::vector<float> before = evaluation.logits(c);
  CHECK(evaluation.logits(c) == before);
  evaluation.train(c);
  CHECK(evaluation.logits(c) == before);
  const std::string some_weight = evaluation.layout().slices.front().tensor.name;
  evaluation.multiply(some_weight, 3, 5);
  CHECK(evaluation.logits(c) != before);
  evaluation.multiply(some_weight, 3, 0.2f);
  CHECK(distance(evaluation.logits(c), {before.begin(), before.end()}) <= 1e-6);
}

TEST_CASE("evaluation needs no more memory than training, with the fewest rows, too",
          "[cpu][evaluation]") {
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const Case c = settled_case(bottlenecks(), 3);
  const std::vector<double> want(
      c.oracle.logits().begin(),
      c.oracle.logits().begin() + static_cast<std::ptrdiff_t>(c.network.classes));
  Evaluation evaluation(c, 1, {.winograd = winograd, .threads = 1});
  CHECK(evaluation.bytes() <= evaluation.training_bytes());
  for (int twice = 0; twice < 2; ++twice) CHECK(distance(evaluation.logits(c), want) <= 1e-5);
}

TEST_CASE("no ReLU hides a NaN in evaluation", "[cpu][evaluation]") {
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  if (precision == Precision::bf16 && !has_bf16()) return;
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  const Case c = settled_case(plain(), 3);
  Evaluation evaluation(c, 3, {.precision = precision, .winograd = winograd});
  evaluation.multiply("c1.bn.bias", 7, std::numeric_limits<float>::quiet_NaN());
  for (const float logit : evaluation.logits(c)) CHECK(std::isnan(logit));
}

TEST_CASE("a folded value takes the place of a skip that nothing reads later",
          "[cpu][evaluation]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet50", 0, 0));
  const auto units = cpu::fold(network, GENERATE(false, true));
  std::size_t folded = 0, in_place = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    folded += units[u].kind == cpu::UnitKind::folded;
    in_place += units[u].in_place;
    if (!units[u].in_place) continue;
    for (const std::size_t reader : units[*units[u].skip].readers) CHECK(reader <= u);
  }
  CHECK(folded == 53);
  CHECK(in_place == 16);  // one in each block
}
