// What a program reads: batches with targets or without, bytes or floats, and images that it folds:
// in 16 bits, for a strided convolution. And what it gives in evaluation. The emulated tests run
// the same cases on the host.
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/infer/classifier.hpp"
#include "ports/cuda/program.hpp"
#include "tests/gpu/fixture.hpp"
#include "tests/support/networks/evaluation.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::infer;
using namespace lockstep::test;

namespace {

constexpr std::size_t rows = 12;

struct Stem {
  std::size_t channels, kernel, stride;
};
constexpr Stem stems[] = {{3, 7, 2}, {1, 7, 2}, {3, 5, 3}, {1, 3, 2}, {3, 3, 3}, {4, 4, 2}};

/// Without batch norms over few values after it, a stem's gradient is close to exact.
double precision_of(Precision precision) { return precision == Precision::fp16 ? 0.02 : 0.1; }

const cuda::ProgramPlan& plan_of(const Compiled& compiled) {
  return dynamic_cast<cuda::CudaProgram&>(*compiled.program).plan();
}

}  // namespace

TEST_CASE("a folded stem has the oracle's loss and gradients, and micro-batches add up", "[gpu]") {
  if (!gpu()) return;
  for (const Stem& stem : stems)
    for (const Precision precision : {Precision::bf16, Precision::fp16})
      for (const bool fused : {false, true}) {
        INFO(to_string(precision) << (fused ? ", fused" : "") << ", " << stem.channels
                                  << " channels, kernel " << stem.kernel << ", stride "
                                  << stem.stride);
        Case c(strided_stem(stem.channels, stem.kernel, stem.stride), rows, 5);
        const auto want = c.oracle.backward();
        for (const std::size_t batch : {rows, rows / 2}) {
          Compiled compiled(c, batch, gpu(), precision, false, fused);
          compiled.parameters->set_loss_scale({1, 0, 0, 0});
          poison(compiled);
          REQUIRE(plan_of(compiled).fold.has_value());
          double loss = compiled.run(c, 0, false);
          if (batch == rows) {
            CHECK(std::abs(loss / rows - c.loss) <= precision_of(precision) / 10 * c.loss);
            CHECK(gradient_distance(compiled, want) <= precision_of(precision));
            continue;
          }
          // Batch norm sees half of the rows at a time: only the sum of the parts is checked.
          const std::vector<float> first = compiled.exported(Part::gradients, 0);
          Compiled other(c, batch, gpu(), precision, false, fused);
          other.parameters->set_loss_scale({1, 0, 0, 0});
          compiled.run(c, batch, true);
          other.run(c, batch, false);
          std::vector<double> sum(first.begin(), first.end());
          const std::vector<float> second = other.exported(Part::gradients, 0);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double{second[i]};
          CHECK(distance(compiled.exported(Part::gradients, 0), sum) <= 1e-6);
        }
      }
}

TEST_CASE("in 32 bits and without a stride nothing is folded, and the arena is always the same",
          "[gpu]") {
  if (!gpu()) return;
  const Case c(strided_stem(3, 7, 2), rows, 5), plain_case(plain(), rows, 5);
  CHECK_FALSE(plan_of(Compiled(plain_case, rows, gpu(), Precision::fp16)).fold.has_value());
  const Compiled wide(c, rows, gpu(), Precision::fp32);
  CHECK_FALSE(plan_of(wide).fold.has_value());
  CHECK_FALSE(plan_of(Compiled(c, rows, gpu(), Precision::tf32)).fold.has_value());
  Compiled folded(c, rows, gpu(), Precision::fp16);
  folded.run(c, 0, false);
  const auto& slices = folded.parameters->layout().slices;
  REQUIRE(slices.size() == wide.parameters->layout().slices.size());
  for (std::size_t s = 0; s < slices.size(); ++s) {
    CHECK(slices[s].offset == wide.parameters->layout().slices[s].offset);
    CHECK(slices[s].size == wide.parameters->layout().slices[s].size);
    CHECK(folded.exported(Part::weights, s) == wide.exported(Part::weights, s));
  }
}

TEST_CASE("bytes and normalised floats are folded to the same logits, in evaluation too", "[gpu]") {
  if (!gpu()) return;
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Case c(bottlenecks(), rows, 5);
    const Compiled compiled(c, rows, gpu(), precision);
    for (const bool training : {false, true}) {
      ProgramSpec spec = compiled.program->spec();
      spec.training = training;
      // Whole numbers, whatever is rounded on the way.
      spec.mean = {0, 0, 0};
      spec.stddev = std::vector<float>(3, 1.f / 255);
      const auto program = compiled.backend->compile(c.network, spec, *compiled.parameters);
      std::vector<std::uint8_t> bytes(c.images.size());
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
      const std::vector<float> floats(bytes.begin(), bytes.end());
      data::Batch batch;
      batch.images = bytes.data();
      batch.targets = c.targets.data();
      batch.rows = batch.capacity = rows;
      std::vector<float> logits[2];
      for (const bool of_bytes : {false, true}) {
        program->set_scalars({0.1f, 1, 1});
        of_bytes ? program->load(batch) : program->load_normalised(floats, c.targets);
        for (const TapeStep& step : program->forward()) step.run();
        logits[of_bytes].resize(rows * c.network.classes);
        program->copy_logits(logits[of_bytes]);
      }
      INFO(to_string(precision) << (training ? ", training" : ""));
      CHECK(logits[0] == logits[1]);
      for (const float logit : logits[0]) CHECK(std::isfinite(logit));
    }
  }
}

TEST_CASE("evaluation on the GPU gives the CPU's logits, every network and precision", "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, rows, 5);
    const auto logits = [&](std::unique_ptr<Backend> on, Precision precision) {
      Compiled compiled(c, rows, std::move(on), precision);
      ProgramSpec spec = compiled.program->spec();
      spec.training = false;
      compiled.program = compiled.backend->compile(c.network, spec, *compiled.parameters);
      return forward_logits(*compiled.program, c);
    };
    const std::vector<float> want =
        logits(make_cpu_backend({std::vector<std::vector<int>>(2)}), Precision::fp32);
    for (const Precision precision :
         {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
      INFO(network.nodes.size() << " nodes in " << to_string(precision));
      // Running statistics do not depend on the batch, so rounding only adds up from layer to
      // layer.
      const double rounding = precision == Precision::fp32   ? 1e-6
                              : precision == Precision::bf16 ? 0x1p-8
                                                             : 0x1p-11;
      CHECK(distance(logits(gpu(), precision), {want.begin(), want.end()}) <= 5 * rounding);
    }
  }
}

TEST_CASE("a batch without targets gives the logits of one with targets, every precision",
          "[gpu]") {
  if (!gpu()) return;
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    INFO(to_string(precision));
    const Case c(bottlenecks(), rows, 5);
    const Compiled compiled(c, rows, gpu(), precision);
    Inference inference(*compiled.backend, c.network, compiled.program->spec(),
                        *compiled.parameters);
    const std::vector<std::uint8_t> bytes(c.images.size(), 99);
    data::Batch batch;
    batch.images = bytes.data();
    batch.rows = batch.capacity = rows;
    std::vector<float> logits[2];
    for (const bool labelled : {false, true}) {
      batch.targets = labelled ? c.targets.data() : nullptr;
      inference.run(batch);
      for (std::size_t row = 0; row < rows; ++row)
        for (const float logit : inference.logits(row)) logits[labelled].push_back(logit);
      CHECK(inference.take_metrics().rows == (labelled ? rows : 0));
    }
    CHECK(logits[0] == logits[1]);
    CHECK_FALSE(std::isnan(logits[0].front()));
  }
}
