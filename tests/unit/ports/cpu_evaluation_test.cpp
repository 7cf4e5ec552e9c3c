// Evaluation, whose batch norms are folded into the convolutions, compared with the oracle.
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/kernels/winograd.hpp"
#include "ports/cpu/lowering.hpp"
#include "tests/support/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

struct Options {
  Precision precision = Precision::fp32;
  Winograd::Mode winograd = Winograd::Mode::never;
  std::size_t threads = 2, chunk_bytes = CpuBackendSpec{}.chunk_bytes;
};

/// A case's evaluation, whose running statistics are those of the case's batch, so that it has to
/// give what training's forward gives.
class Evaluation {
 public:
  Evaluation(const Case& c, std::size_t rows, const Options& options)
      : compiled_(
            c, rows,
            make_cpu_backend({std::vector<std::vector<int>>(options.threads), options.chunk_bytes}),
            options.precision, false, false, {options.winograd, {}}) {
    ProgramSpec spec = compiled_.program->spec();
    spec.training = false;
    program_ = compiled_.backend->compile(c.network, spec, *compiled_.parameters);
    for (std::size_t s = layout().learned_slices; s < layout().slices.size(); ++s) {
      const nn::Tensor& tensor = layout().slices[s].tensor;
      const nn::Node& node = c.network.nodes[tensor.node];
      const auto n = static_cast<double>(c.targets.size() * node.shape.height * node.shape.width);
      std::vector<float> values;
      for (std::size_t i = 0; i < tensor.count(); ++i)
        values.push_back(
            static_cast<float>(tensor.role == nn::Role::running_mean
                                   ? c.oracle.batch_mean(node.name)[i]
                                   : c.oracle.batch_variance(node.name)[i] * (n - 1) / n));
      compiled_.parameters->import_slice(Part::weights, s, values);
    }
  }

  const nn::ArenaLayout& layout() const { return compiled_.parameters->layout(); }

  /// The logits of the case's first rows.
  std::vector<float> logits(const Case& c) {
    const std::size_t rows = program_->spec().batch;
    const std::vector<float> images(
        c.images.begin(),
        c.images.begin() + static_cast<std::ptrdiff_t>(rows * c.network.input.count()));
    program_->load_normalised(images, std::span(c.targets).first(rows));
    for (const TapeStep& step : program_->forward()) step.run();
    std::vector<float> values(rows * c.network.classes);
    program_->copy_logits(values);
    return values;
  }

  void train(const Case& c) { compiled_.run(c, 0, false); }

  /// Multiplies one value of a tensor.
  void multiply(const std::string& name, std::size_t index, float factor) {
    const std::size_t s = static_cast<std::size_t>(&layout().find(name) - layout().slices.data());
    std::vector<float> values = compiled_.exported(Part::weights, s);
    values[index] *= factor;
    compiled_.parameters->import_slice(Part::weights, s, values);
  }

 private:
  Compiled compiled_;
  std::unique_ptr<Program> program_;
};

bool has_bf16() {
  try {
    make_cpu_backend({})->make_parameters(plain(), Precision::bf16);
    return true;
  } catch (const InputError& error) {
    std::cout << "SKIPPED: " << error.what() << '\n';
    return false;
  }
}

}  // namespace

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

TEST_CASE("in bf16 evaluation gives the oracle's logits within its rounding", "[cpu][evaluation]") {
  if (!has_bf16()) return;
  const auto winograd = GENERATE(Winograd::Mode::never, Winograd::Mode::everywhere);
  for (const nn::Network& network : all_sketches()) {
    const Case c = settled_case(network, 3);
    Evaluation evaluation(c, 3, {.precision = Precision::bf16, .winograd = winograd});
    CHECK(distance(evaluation.logits(c), c.oracle.logits()) <= 0.03);
  }
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
  const auto units = cpu::fold(network, cpu::lower(network));
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
