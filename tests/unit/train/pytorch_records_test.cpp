// PyTorch's own training records (../shared/reference): lockstep must match them within the bounds
// in their README.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/harness/records.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

std::unique_ptr<Backend> cpu(std::size_t threads) {
  return make_cpu_backend({std::vector<std::vector<int>>(threads)});
}

constexpr std::size_t image = 3 * 32 * 32;

}  // namespace

TEST_CASE("PyTorch's gradients and next state of ResNet-20 on two images, tensor by tensor",
          "[records]") {
  const auto path = reference("resnet20.h5");
  if (!path) return;
  const Records records(*path);
  const std::size_t threads = GENERATE(1u, 2u);
  Bench bench({}, 2, cpu(threads));
  bench.import(Part::weights, reading(records, "init"));
  const double loss = bench.step(records.read("two_images/x"), records.read("two_images/y"), 0.1f);
  const double want = records.read("two_images/loss64")[0];
  CHECK(std::abs(loss - want) <= 1e-6 * std::abs(want));
  CHECK(distance(bench.logits(*bench.program), records.read("two_images/logits64")) <= 1e-6);
  for (std::size_t s = 0; s < bench.layout().slices.size(); ++s) {
    const std::string name = record_name(bench.layout().slices[s].tensor.name);
    INFO(name);
    if (s < bench.layout().learned_slices)
      CHECK(distance(bench.export_slice(Part::gradients, s),
                     records.read("two_images/grad64/" + name)) <= 2e-5);
    CHECK(distance(bench.export_slice(Part::weights, s),
                   records.read("two_images/next64/" + name)) <= 2e-5);
  }
}

TEST_CASE("PyTorch's first step of ResNet-20 on 64 images", "[records]") {
  const auto path = reference("resnet20.h5");
  if (!path) return;
  const Records records(*path);
  Bench bench({}, 64, cpu(2));
  bench.import(Part::weights, reading(records, "init"));
  const double loss = bench.gradients(batch(records.read("batches/x"), 0, 64 * image),
                                      batch(records.read("batches/y"), 0, 64), 0.1f);
  CHECK(std::abs(loss - records.read("loss")[0]) <= 1e-6 * loss);
  CHECK(distance(bench.logits(*bench.program), batch(records.read("logits"), 0, 640)) <= 1e-5);
  Values got, want;
  for (std::size_t s = 0; s < bench.layout().learned_slices; ++s) {
    append(got, bench.export_slice(Part::gradients, s));
    append(want, records.read("grad_step0/" + record_name(bench.layout().slices[s].tensor.name)));
  }
  CHECK(distance(got, want) <= 2e-3);
}

TEST_CASE("PyTorch's single steps of ResNet-20 from its recorded states", "[records]") {
  const auto path = reference("resnet20.h5");
  if (!path) return;
  const Records records(*path);
  const Values x = records.read("batches/x"), y = records.read("batches/y"),
               losses = records.read("loss");
  Bench bench({}, 64, cpu(2));
  for (const std::size_t k : {1u, 2u, 5u, 10u, 19u}) {
    INFO("step " << k);
    const std::string state = "state_before_step/" + std::to_string(k);
    bench.import(Part::weights, reading(records, state + "/weights"));
    bench.import(Part::momentum, reading(records, state + "/momentum"));
    const double loss = bench.step(batch(x, k, 64 * image), batch(y, k, 64), 0.1f);
    CHECK(std::abs(loss - losses[k]) <= 1e-6 * std::abs(losses[k]));
    const std::string next = k == 1 ? "state_before_step/2/weights" : k == 19 ? "final" : "";
    if (next.empty()) continue;
    Values got, want;
    for (std::size_t s = 0; s < bench.layout().learned_slices; ++s) {
      append(got, bench.export_slice(Part::weights, s));
      append(want, records.read(next + "/" + record_name(bench.layout().slices[s].tensor.name)));
    }
    CHECK(distance(got, want) <= 2e-5);
  }
}

TEST_CASE("PyTorch's 20 free steps of ResNet-20", "[records][large]") {
  const auto path = reference("resnet20.h5");
  if (!path) return;
  const Records records(*path);
  const Values x = records.read("batches/x"), y = records.read("batches/y");
  Bench bench({}, 64, cpu(2));
  {
    bench.import(Part::weights, reading(records, "init"));
    const Values want = records.read("lr001/loss64");
    for (std::size_t k = 0; k < 20; ++k) {
      INFO("lr 0.01, step " << k);
      CHECK(std::abs(bench.step(batch(x, k, 64 * image), batch(y, k, 64), 0.01f) - want[k]) <=
            2e-3);
    }
  }
  Bench fast({}, 64, cpu(2));
  fast.import(Part::weights, reading(records, "init"));
  const Values exact = records.read("loss64"), torch = records.read("loss");
  double worst = 0;
  for (std::size_t k = 0; k < 20; ++k) {
    INFO("lr 0.1, step " << k);
    worst = std::max(worst, std::abs(torch[k] - exact[k]));
    CHECK(std::abs(fast.step(batch(x, k, 64 * image), batch(y, k, 64), 0.1f) - exact[k]) <=
          3 * worst + 1e-3);
  }
}

TEST_CASE("torchvision's ResNet-50: logits, loss, gradients and running statistics",
          "[records][large]") {
  const auto path = reference("resnet50.h5");
  if (!path) return;
  const Records records(*path);
  const Values check = records.read("gen_check");
  CHECK(generated(0, 8, 1) == std::vector<float>(check.begin(), check.begin() + 8));
  nn::ResNetSpec model;
  model.model = "resnet50";
  model.height = model.width = 64;
  const Values x = records.read("x"), y = records.read("y");
  const double want = records.read("loss64")[0];
  for (const std::size_t threads : {1u, 3u}) {
    INFO(threads << " threads");
    Bench bench(model, 4, cpu(threads));
    import_resnet50(bench);
    const double loss = bench.gradients(x, y, 0);
    CHECK(std::abs(loss - want) <= 1e-5 * std::abs(want));
    CHECK(distance(bench.logits(*bench.program), records.read("logits64")) <= 1e-5);
    INFO(unflip_resnet50(bench, records, x, y) << " ReLUs moved to the record's side");
    const GradientDistance gradient = resnet50_gradient_distance(bench, records);
    CHECK(gradient.whole <= 1e-4);
    CHECK(gradient.worst_tensor <= 1e-4);
    bench.backend->update_statistics(*bench.parameters, 1);
    const auto running = [&](const char* name) {
      return bench.export_slice(Part::weights, bench.slice(name));
    };
    CHECK(distance(running("bn1.running_mean"), records.read("running_mean_bn164")) <= 1e-5);
    CHECK(distance(running("bn1.running_var"), records.read("running_var_bn164")) <= 1e-5);
    bench.load(*bench.evaluation, x, y);
    for (const TapeStep& step : bench.evaluation->forward()) step.run();
    CHECK(distance(bench.logits(*bench.evaluation), records.read("eval_logits_after_one_fwd64")) <=
          1e-5);
  }
}
