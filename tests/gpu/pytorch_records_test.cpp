// PyTorch's own training records on the GPU. In fp32 the order of sums differs from the CPU's, so
// the bounds are a few times the CPU's.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/gpu/fixture.hpp"
#include "tests/support/harness/records.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

constexpr std::size_t image = 3 * 32 * 32;

}  // namespace

TEST_CASE("PyTorch's gradients and next state of ResNet-20 on two images, on the GPU",
          "[gpu][records]") {
  const auto path = reference("resnet20.h5");
  if (!path || !gpu()) return;
  const Records records(*path);
  Bench bench({}, 2, gpu());
  bench.import(Part::weights, reading(records, "init"));
  const double loss = bench.step(records.read("two_images/x"), records.read("two_images/y"), 0.1f);
  const double want = records.read("two_images/loss64")[0];
  CHECK(std::abs(loss - want) <= 3e-6 * std::abs(want));
  CHECK(distance(bench.logits(*bench.program), records.read("two_images/logits64")) <= 5e-6);
  for (std::size_t s = 0; s < bench.layout().slices.size(); ++s) {
    const std::string name = record_name(bench.layout().slices[s].tensor.name);
    INFO(name);
    if (s < bench.layout().learned_slices)
      CHECK(distance(bench.export_slice(Part::gradients, s),
                     records.read("two_images/grad64/" + name)) <= 1e-4);
    CHECK(distance(bench.export_slice(Part::weights, s),
                   records.read("two_images/next64/" + name)) <= 1e-4);
  }
}

TEST_CASE("PyTorch's 20 free steps of ResNet-20, on the GPU, every precision", "[gpu][records]") {
  const auto path = reference("resnet20.h5");
  if (!path || !gpu()) return;
  const Records records(*path);
  const Values x = records.read("batches/x"), y = records.read("batches/y"),
               want = records.read("lr001/loss64");
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    Bench bench({}, 64, gpu(), precision);
    bench.import(Part::weights, reading(records, "init"));
    // Rounding is fed back into the weights for 20 steps; the losses are around 2.
    const double within = precision == Precision::fp32   ? 5e-3
                          : precision == Precision::bf16 ? 0.1
                                                         : 0.03;
    for (std::size_t k = 0; k < 20; ++k) {
      INFO(to_string(precision) << ", step " << k);
      CHECK(std::abs(bench.step(batch(x, k, 64 * image), batch(y, k, 64), 0.01f) - want[k]) <=
            within);
    }
  }
}

TEST_CASE("torchvision's ResNet-50 on the GPU: logits, loss, gradients and running statistics",
          "[gpu][records]") {
  const auto path = reference("resnet50.h5");
  if (!path || !gpu()) return;
  const Records records(*path);
  nn::ResNetSpec model;
  model.model = "resnet50";
  model.height = model.width = 64;
  const Values x = records.read("x"), y = records.read("y");
  const double want = records.read("loss64")[0];
  Bench bench(model, 4, gpu());
  import_resnet50(bench);
  CHECK(std::abs(bench.gradients(x, y, 0) - want) <= 3e-5 * std::abs(want));
  CHECK(distance(bench.logits(*bench.program), records.read("logits64")) <= 5e-5);
  INFO(unflip_resnet50(bench, records, x, y) << " ReLUs moved to the record's side");
  const GradientDistance gradient = resnet50_gradient_distance(bench, records);
  CHECK(gradient.whole <= 1e-4);
  CHECK(gradient.worst_tensor <= 1e-4);
  bench.backend->update_statistics(*bench.parameters, 1);
  const auto running = [&](const char* name) {
    return bench.export_slice(Part::weights, bench.slice(name));
  };
  CHECK(distance(running("bn1.running_mean"), records.read("running_mean_bn164")) <= 5e-5);
  CHECK(distance(running("bn1.running_var"), records.read("running_var_bn164")) <= 5e-5);
  bench.load(*bench.evaluation, x, y);
  for (const TapeStep& step : bench.evaluation->forward()) step.run();
  CHECK(distance(bench.logits(*bench.evaluation), records.read("eval_logits_after_one_fwd64")) <=
        5e-5);
}
