// Compares the CUDA backend with the oracle (double precision, node by node) and the CPU backend,
// in one process.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/gpu/fixture.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

constexpr Precision all_precisions[] = {Precision::fp32, Precision::tf32, Precision::bf16,
                                        Precision::fp16};

/// Batch norm over a handful of values amplifies coarse rounding, so coarse precisions get more
/// values. ReLUs flip anyway.
Case case_for(Precision precision, const nn::Network& network, std::size_t rows) {
  return precision == Precision::fp32 ? settled_case(network, rows) : Case(network, 4 * rows, 5);
}

/// On the GPU, poisoned, with a loss scale that suits batches of a few rows.
Compiled on_gpu(const Case& c, std::size_t rows, Precision precision, bool deterministic = false,
                bool fuse_norms = false) {
  Compiled compiled(c, rows, gpu(), precision, deterministic, fuse_norms);
  compiled.parameters->set_loss_scale({1024, 0, 0, 0});
  poison(compiled);
  return compiled;
}

std::unique_ptr<Backend> cpu() { return make_cpu_backend({std::vector<std::vector<int>>(2)}); }

/// fp16's gradients in the arena are multiplied by the loss scale, which the update divides out.
std::map<std::string, std::vector<double>> scaled(std::map<std::string, std::vector<double>> want,
                                                  const Compiled& compiled) {
  const auto scale = compiled.parameters->loss_scale();
  if (!scale) return want;
  for (auto& [name, values] : want)
    for (double& v : values) v *= static_cast<double>(scale->scale);
  return want;
}

std::map<std::string, std::vector<double>> exported(const Compiled& compiled, Part part) {
  std::map<std::string, std::vector<double>> all;
  const auto& slices = compiled.parameters->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::vector<float> values = compiled.exported(part, s);
    all[slices[s].tensor.name] = {values.begin(), values.end()};
  }
  return all;
}

std::vector<float> logits_of(const Compiled& compiled, std::size_t classes) {
  std::vector<float> logits(compiled.program->spec().batch * classes);
  compiled.program->copy_logits(logits);
  return logits;
}

void update(Compiled& compiled, const optim::StepScalars& scalars) {
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f, .nesterov = true},
                               .weight_decay = std::vector<float>(layout.slices.size(), 1e-3f)};
  compiled.backend->judge_gradients(*compiled.parameters);
  compiled.backend->update(*compiled.parameters, rule, scalars, 0, layout.learned_slices);
  compiled.backend->update_statistics(*compiled.parameters, 1);
}

constexpr optim::StepScalars after_run{.lr = 0.1f, .gradient_scale = 1, .statistics_share = 1};

}  // namespace

TEST_CASE("the GPU's loss, gradients and statistics are the oracle's, every node and precision",
          "[gpu]") {
  if (!gpu()) return;
  for (const Precision precision : all_precisions) {
    for (const nn::Network& network : all_sketches()) {
      const Tolerance within = tolerance_of(precision, network);
      for (const std::size_t rows : {1u, 3u}) {
        Case c = case_for(precision, network, rows);
        Compiled compiled = on_gpu(c, c.targets.size(), precision);
        INFO(to_string(precision) << ", " << network.nodes.size() << " nodes, " << c.targets.size()
                                  << " rows");
        const double loss = compiled.run(c, 0, false) / static_cast<double>(c.targets.size());
        CHECK(std::abs(loss - c.loss) <= within.loss * std::abs(c.loss));
        CHECK(gradient_distance(compiled, scaled(c.oracle.backward(), compiled)) <=
              within.gradient);
      }
    }
  }
}

TEST_CASE("with batch norms fused into the convolutions, loss and gradients are the oracle's",
          "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Tolerance within = tolerance_of(Precision::fp16, network);
    Case c = case_for(Precision::fp16, network, 3);
    Compiled fused = on_gpu(c, c.targets.size(), Precision::fp16, false, true);
    INFO(network.nodes.size() << " nodes");
    const double loss = fused.run(c, 0, false) / static_cast<double>(c.targets.size());
    CHECK(std::abs(loss - c.loss) <= within.loss * std::abs(c.loss));
    CHECK(gradient_distance(fused, scaled(c.oracle.backward(), fused)) <= within.gradient);
  }
}

TEST_CASE("fused or not, micro-batches add up to the same gradients and statistics", "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    const Tolerance within = tolerance_of(Precision::fp16, network);
    const Case c = case_for(Precision::fp16, network, 3);
    const std::size_t half = c.targets.size() / 2;
    Compiled fused = on_gpu(c, half, Precision::fp16, false, true),
             apart = on_gpu(c, half, Precision::fp16);
    double loss[2] = {};
    for (const bool again : {false, true}) {
      loss[0] += fused.run(c, again ? half : 0, again);
      loss[1] += apart.run(c, again ? half : 0, again);
    }
    INFO(network.nodes.size() << " nodes");
    CHECK(std::abs(loss[0] - loss[1]) <= 2 * within.loss * std::abs(loss[1]));
    const nn::ArenaLayout& layout = fused.parameters->layout();
    const auto want = exported(apart, Part::gradients);
    for (std::size_t s = 0; s < layout.slices.size(); ++s) {
      const std::string& name = layout.slices[s].tensor.name;
      INFO(name);
      CHECK(distance(fused.exported(Part::gradients, s), want.at(name)) <=
            (s < layout.learned_slices ? within.gradient : 2e-3));
    }
  }
}

TEST_CASE("in fp32 the GPU's gradients are the oracle's, tensor by tensor", "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    Compiled compiled = on_gpu(c, 3, Precision::fp32);
    compiled.run(c, 0, false);
    const auto want = c.oracle.backward();
    const nn::ArenaLayout& layout = compiled.parameters->layout();
    for (std::size_t s = 0; s < layout.learned_slices; ++s) {
      INFO(layout.slices[s].tensor.name);
      CHECK(distance(compiled.exported(Part::gradients, s),
                     want.at(layout.slices[s].tensor.name)) <= 3e-5);
    }
  }
}

TEST_CASE("a step leaves the GPU with the CPU's weights, momentum and running statistics",
          "[gpu]") {
  if (!gpu()) return;
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    Compiled device(c, 3, gpu(), Precision::fp32), host(c, 3, cpu(), Precision::fp32);
    for (Compiled* each : {&device, &host}) {
      each->run(c, 0, false);
      update(*each, after_run);
    }
    for (const Part part : {Part::weights, Part::momentum}) {
      const auto want = exported(host, part);
      for (const auto& [name, values] : exported(device, part)) {
        INFO(name);
        const std::vector<float> got(values.begin(), values.end());
        double size = 0;
        for (const double v : want.at(name)) size += v * v;
        if (size > 0) CHECK(distance(got, want.at(name)) <= 3e-5);
      }
    }
  }
}

TEST_CASE("fp16's update divides the loss scale out", "[gpu]") {
  if (!gpu()) return;
  const Case c(padded_shortcuts(), 12, 5);
  Compiled device = on_gpu(c, 12, Precision::fp16), host(c, 12, cpu(), Precision::fp32);
  for (Compiled* each : {&device, &host}) {
    each->run(c, 0, false);
    update(*each, after_run);
  }
  const auto want = exported(host, Part::momentum);
  for (const auto& [name, values] : exported(device, Part::momentum)) {
    if (name.find("running") != std::string::npos) continue;
    INFO(name);
    CHECK(distance({values.begin(), values.end()}, want.at(name)) <= 0.1);
  }
  CHECK(*device.parameters->loss_scale() == LossScale{1024, 1, 0, 0});
}

TEST_CASE("a step whose gradients overflow changes nothing and halves the loss scale", "[gpu]") {
  if (!gpu()) return;
  Case c = settled_case(plain(), 3);
  for (const std::size_t spoiled : {0u, 5u}) {  // a weight's gradient, a batch norm's
    Compiled compiled = on_gpu(c, 3, Precision::fp16);
    compiled.run(c, 0, false);
    const auto before = exported(compiled, Part::weights);
    const std::uint32_t hash = compiled.parameters->hash();
    std::vector<float> gradient = compiled.exported(Part::gradients, spoiled);
    gradient.back() = INFINITY;
    compiled.parameters->import_slice(Part::gradients, spoiled, gradient);
    update(compiled, after_run);
    CHECK(exported(compiled, Part::weights) == before);
    CHECK(compiled.parameters->hash() == hash);
    CHECK(*compiled.parameters->loss_scale() == LossScale{512, 0, 1, 1});
    compiled.run(c, 0, false);
    update(compiled, after_run);
    CHECK(compiled.parameters->hash() != hash);
    CHECK(*compiled.parameters->loss_scale() == LossScale{512, 1, 0, 1});
  }
}

TEST_CASE("two micro-batches accumulate on the GPU as on the CPU, every precision", "[gpu]") {
  if (!gpu()) return;
  for (const Precision precision : all_precisions) {
    const Case c = case_for(precision, bottlenecks(), 6);
    const std::size_t half = c.targets.size() / 2;
    Compiled device = on_gpu(c, half, precision), host(c, half, cpu(), Precision::fp32);
    for (const std::size_t first : {std::size_t{0}, half})
      for (Compiled* each : {&device, &host}) each->run(c, first, first > 0);
    INFO(to_string(precision));
    const double flips = 1e-3;  // half a batch is less well conditioned than the whole
    CHECK(gradient_distance(device, scaled(exported(host, Part::gradients), device)) <=
          tolerance_of(precision, c.network).gradient + flips);
  }
}

TEST_CASE("padding rows count nowhere on the GPU", "[gpu]") {
  if (!gpu()) return;
  Case c = settled_case(bottlenecks(), 5);
  Case padded = c;
  for (std::size_t row = 3; row < 5; ++row) padded.targets[row] = {};
  Compiled device = on_gpu(padded, 5, Precision::fp32), host(padded, 5, cpu(), Precision::fp32);
  for (Compiled* each : {&device, &host}) each->run(padded, 0, false);
  CHECK(gradient_distance(device, exported(host, Part::gradients)) <= 1e-3);
  for (Compiled* each : {&device, &host}) {
    ProgramSpec spec = each->program->spec();
    spec.training = false;
    const auto evaluation = each->backend->compile(c.network, spec, *each->parameters);
    each->images.assign(c.images.begin(), c.images.end());
    evaluation->load_normalised(each->images, padded.targets);
    for (const TapeStep& step : evaluation->forward()) step.run();
    CHECK(evaluation->take_metrics().rows == 3);
    CHECK(evaluation->take_metrics().rows == 0);
  }
}

TEST_CASE("bytes are normalised on the GPU as on the CPU", "[gpu]") {
  if (!gpu()) return;
  const Case c = settled_case(plain(), 3);
  std::vector<std::uint8_t> bytes(c.images.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  std::vector<float> logits[2];
  for (const bool device : {false, true}) {
    Compiled compiled(c, 3, device ? gpu() : cpu(), Precision::fp32);
    ProgramSpec spec = compiled.program->spec();
    spec.mean = {0.4f, 0.5f, 0.6f};
    spec.stddev = {0.2f, 0.25f, 0.3f};
    const auto program = compiled.backend->compile(c.network, spec, *compiled.parameters);
    data::Batch batch;
    batch.images = bytes.data();
    batch.targets = c.targets.data();
    batch.rows = batch.capacity = 3;
    program->set_scalars(after_run);
    program->load(batch);
    for (const TapeStep& step : program->forward()) step.run();
    logits[device].resize(3 * c.network.classes);
    program->copy_logits(logits[device]);
  }
  CHECK(distance(logits[1], {logits[0].begin(), logits[0].end()}) <= 1e-5);
}

TEST_CASE("deterministic runs give the same bits twice, every precision", "[gpu]") {
  if (!gpu()) return;
  for (const Precision precision : all_precisions) {
    const Case c(bottlenecks(), 7, 5);
    std::vector<std::uint32_t> hashes;
    for (int round = 0; round < 2; ++round) {
      Compiled compiled = on_gpu(c, 7, precision, true);
      for (int step = 0; step < 3; ++step) {
        compiled.run(c, 0, false);
        update(compiled, after_run);
      }
      hashes.push_back(compiled.parameters->hash());
    }
    INFO(to_string(precision));
    CHECK(hashes[0] == hashes[1]);
  }
}

namespace {

struct Whole {
  const char* model;
  const char* last_norm;  ///< of a residual branch
  std::size_t side, rows;
};

/// Makes residual branches add only a little to their input, as in a trained network. With full
/// scales, fifty layers of random weights are chaotic.
void tame(Case& c, const std::string& last_norm) {
  for (auto& [name, values] : c.oracle.parameters)
    if (name.starts_with("layer") && name.ends_with(last_norm + ".weight"))
      for (double& v : values) v *= 0.25;
}

/// Rounding adds up with depth, and ReLUs near zero flip: these cases are badly conditioned.
Tolerance whole_tolerance(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return {1e-4, 0.02};
    case Precision::tf32:
    case Precision::fp16:
      return {0.01, 0.2};
    case Precision::bf16:
      return {0.05, 0.6};
  }
  throw Error("a precision without a tolerance");
}

}  // namespace

TEST_CASE("ResNet-20 and ResNet-50 on the GPU are the CPU's, every precision", "[gpu][whole]") {
  if (!gpu()) return;
  for (const Whole& whole : {Whole{"resnet20", "bn2", 32, 16}, Whole{"resnet50", "bn3", 64, 8}}) {
    nn::ResNetSpec spec;
    spec.model = whole.model;
    spec.height = spec.width = whole.side;
    const nn::Network network = nn::resnet(spec);
    Case c(network, whole.rows, 3);
    tame(c, whole.last_norm);
    Compiled host(c, whole.rows, cpu(), Precision::fp32);
    const double loss = host.run(c, 0, false);
    const auto gradients = exported(host, Part::gradients);
    const std::vector<float> logits = logits_of(host, network.classes);
    for (const Precision precision : all_precisions) {
      Compiled device = on_gpu(c, whole.rows, precision);
      INFO(whole.model << " in " << to_string(precision));
      const Tolerance within = whole_tolerance(precision);
      CHECK(std::abs(device.run(c, 0, false) - loss) <= within.loss * std::abs(loss));
      CHECK(distance(logits_of(device, network.classes), {logits.begin(), logits.end()}) <=
            4 * within.loss);
      CHECK(gradient_distance(device, scaled(gradients, device)) <= within.gradient);
    }
  }
}
