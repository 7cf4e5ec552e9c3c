// The trainer on one GPU, and its state across backends.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/trainer.hpp"
#include "tests/gpu/fixture.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

/// A world of one rank: sums stay as they are, in the compute stream's order.
struct Alone final : comm::SilentCommunicator {
  explicit Alone(Device& device) : SilentCommunicator(0, 1, device.compute()) {}
};

/// Images whose class is the corner (of four) that is bright: learned in a few steps.
struct Corners {
  explicit Corners(std::size_t rows) : pixels(rows * 16 * 16 * 3), targets(rows) {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t label = row * 7 % 4;
      targets[row] = {static_cast<int>(label), static_cast<int>(label), 1};
      for (std::size_t y = 0; y < 16; ++y)
        for (std::size_t x = 0; x < 48; ++x) {
          const bool lit = (y < 8) == (label < 2) && (x < 24) == (label % 2 == 0);
          pixels[(row * 16 + y) * 48 + x] =
              static_cast<std::uint8_t>((lit ? 160 : 20) + (row * 31 + y * 7 + x * 13) % 64);
        }
    }
    batch.images = pixels.data();
    batch.targets = targets.data();
    batch.rows = batch.capacity = rows;
  }
  std::vector<std::uint8_t> pixels;
  std::vector<data::Target> targets;
  data::Batch batch;
};

train::TrainerSpec spec_of(Precision precision, std::size_t micro_batch) {
  train::TrainerSpec spec;
  nn::ResNetSpec model;
  model.height = model.width = 16;
  model.classes = 4;
  spec.network = nn::resnet(model);
  spec.program.batch = micro_batch;
  spec.program.precision = precision;
  spec.program.mean = {0.4f, 0.4f, 0.4f};
  spec.program.stddev = {0.25f, 0.25f, 0.25f};
  spec.bucket_bytes = 1 << 16;
  return spec;
}

model::CheckpointHeader some_header() {
  model::CheckpointHeader header;
  header.input.classes = {"a"};
  header.input.mean = header.input.stddev = {0.5f};
  return header;
}

constexpr Precision all_precisions[] = {Precision::fp32, Precision::tf32, Precision::bf16,
                                        Precision::fp16};

}  // namespace

TEST_CASE("twenty steps on the GPU learn what the CPU learns, every precision",
          "[gpu][train][whole]") {
  if (!gpu()) return;
  const Corners data(32);
  const auto host = make_cpu_backend({std::vector<std::vector<int>>(2)});
  Alone host_world(host->device());
  train::Trainer want(spec_of(Precision::fp32, 16), *host, host_world);
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step)
    losses.push_back(want.step(data.batch, 32, 0.05f).metrics.loss / 32);
  REQUIRE(losses.back() < 0.5 * losses.front());
  for (const Precision precision : all_precisions) {
    const auto backend = gpu();
    Alone world(backend->device());
    train::Trainer trainer(spec_of(precision, 16), *backend, world);  // two micro-batches a step
    double last = 0;
    for (int step = 0; step < 20; ++step) {
      const train::StepReport report = trainer.step(data.batch, 32, 0.05f);
      CHECK(report.metrics.rows == 32);
      CHECK_FALSE(report.skipped());
      CHECK(report.loss_scale.has_value() == has_loss_scale(precision));
      last = report.metrics.loss / 32;
      INFO(to_string(precision) << ", step " << step);
      if (step == 0) CHECK(last == Approx(losses[0]).epsilon(0.02));
    }
    INFO(to_string(precision));
    CHECK(last < 0.5 * losses.front());
  }
}

TEST_CASE("an uneven last batch trains on the GPU as on the CPU", "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(27);  // micro-batches of 14 and 13 rows, after a program of 16
  const auto host = make_cpu_backend({std::vector<std::vector<int>>(2)});
  const auto device = gpu();
  Alone host_world(host->device()), device_world(device->device());
  train::Trainer want(spec_of(Precision::fp32, 16), *host, host_world);
  train::Trainer got(spec_of(Precision::fp32, 16), *device, device_world);
  // At a larger rate the loss grows, and with it what the order of sums makes of a rounding.
  for (int step = 0; step < 3; ++step) {
    const train::StepReport there = want.step(data.batch, 27, 0.002f);
    const train::StepReport here = got.step(data.batch, 27, 0.002f);
    INFO("step " << step);
    CHECK(here.metrics.rows == 27);
    CHECK(here.metrics.loss == Approx(there.metrics.loss).epsilon(1e-3));
  }
}

TEST_CASE("steps that are launched without waiting, called or recorded, have the figures of others",
          "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(4);
  std::vector<double> want;
  std::uint32_t hash = 0;
  for (const auto& [graph, waits] :
       {std::pair{false, true}, std::pair{false, false}, std::pair{true, false}}) {
    INFO((graph ? "recorded" : "called") << (waits ? ", each read" : ", read at the end"));
    const auto backend = gpu();
    Alone world(backend->device());
    train::TrainerSpec spec = spec_of(Precision::fp16, 4);
    spec.program.deterministic = true;
    spec.clip_norm = 1;
    spec.graph = graph;
    train::Trainer trainer(spec, *backend, world);
    std::vector<double> got;
    const auto note = [&](const train::StepReport& report) {
      got.insert(got.end(), {report.metrics.loss, *report.gradient_norm,
                             static_cast<double>(report.loss_scale->scale)});
      CHECK(report.metrics.rows == 4);
    };
    constexpr int steps = 6;
    for (int step = 0; step < steps; ++step) {
      trainer.launch(data.batch, 4, 0.05f);
      trainer.let_run(backend->device().steps_ahead());
      if (waits) note(trainer.report());
    }
    for (int step = 0; step < steps && !waits; ++step) note(trainer.report());
    if (want.empty()) {
      want = got;
      hash = trainer.parameters().hash();
    }
    CHECK(got == want);
    CHECK(trainer.parameters().hash() == hash);
  }
}

TEST_CASE("a batch that arrived during the step before it trains like any other", "[gpu][train]") {
  if (!gpu()) return;
  const Corners full(8), uneven(6);
  const auto rows_of = [&](int step) { return step == 2 ? 6u : 8u; };
  std::vector<std::uint32_t> hashes;
  for (const bool ahead : {false, true}) {
    const auto backend = gpu();
    Alone world(backend->device());
    train::TrainerSpec spec = spec_of(Precision::bf16, 4);
    spec.program.deterministic = true;
    train::Trainer trainer(spec, *backend, world);
    for (int step = 0; step < 4; ++step) {
      const auto batch = [&](int of) {
        data::Batch its = of == 2 ? uneven.batch : full.batch;
        its.index = static_cast<std::uint64_t>(of);
        return its;
      };
      const auto next = [&]() -> std::optional<train::NextBatch> {
        if (!ahead) return std::nullopt;
        return train::NextBatch{batch(step + 1), rows_of(step + 1)};
      };
      CHECK(trainer.step(batch(step), rows_of(step), 0.05f, next).metrics.rows == rows_of(step));
    }
    hashes.push_back(trainer.parameters().hash());
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("steps that are recorded as CUDA graphs train like others, bit for bit",
          "[gpu][train][graph]") {
  if (!gpu()) return;
  const Corners full(8), uneven(6);
  std::vector<std::uint32_t> hashes;
  for (const bool graph : {false, true}) {
    const auto backend = gpu();
    Alone world(backend->device());
    train::TrainerSpec spec = spec_of(Precision::fp16, 4);
    spec.program.deterministic = spec.program.keeps_average = true;
    spec.average = {.decay = 0.9};
    spec.graph = graph;
    train::Trainer trainer(spec, *backend, world);
    for (int step = 0; step < 6; ++step) {
      const data::Batch& batch = step == 3 ? uneven.batch : full.batch;
      const auto report = trainer.step(batch, batch.rows, 0.05f / static_cast<float>(step + 1));
      CHECK(report.metrics.rows == batch.rows);
      CHECK(report.times.backward_ms > 0);
    }
    hashes.push_back(trainer.parameters().hash());
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("engines are measured once: the next start takes them from the file", "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(4);
  const test::Folder folder;
  train::TrainerSpec spec = spec_of(Precision::fp16, 4);
  spec.program.plan_cache = (folder.path / "plans.txt").string();
  std::vector<std::string> kept;
  for (int start = 0; start < 2; ++start) {
    const auto backend = gpu();
    Alone world(backend->device());
    train::Trainer trainer(spec, *backend, world);
    CHECK(std::isfinite(trainer.step(data.batch, 4, 0.05f).metrics.loss));
    kept.push_back(read_text(spec.program.plan_cache));
  }
  CHECK(std::count(kept[0].begin(), kept[0].end(), '\n') > 20);
  CHECK(kept[0] == kept[1]);
}

TEST_CASE("overflows in a row stop the run and leave its state as it was", "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(1);
  const auto backend = gpu();
  Alone world(backend->device());
  train::Trainer trainer(spec_of(Precision::fp16, 1), *backend, world);
  std::vector<float> scale(16, INFINITY);
  const std::size_t slice = [&] {
    const auto& slices = trainer.parameters().layout().slices;
    return static_cast<std::size_t>(&trainer.parameters().layout().find("bn1.weight") -
                                    slices.data());
  }();
  trainer.parameters().import_slice(Part::weights, slice, scale);
  const std::uint32_t before = trainer.parameters().hash();
  for (std::uint32_t step = 1; step < train::most_skipped_steps; ++step)
    CHECK(trainer.step(data.batch, 1, 0.1f).skipped());
  CHECK_THROWS_WITH(trainer.step(data.batch, 1, 0.1f),
                    Catch::Matchers::Contains("steps in a row were skipped"));
  CHECK(trainer.parameters().hash() == before);
}

TEST_CASE("a checkpoint goes from the GPU to the CPU and back, bit for bit", "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(8);
  const test::Folder folder;
  const auto path = folder.path / "checkpoint.h5";
  const auto backend = gpu();
  Alone world(backend->device());
  train::Trainer first(spec_of(Precision::fp16, 8), *backend, world);
  for (int step = 0; step < 3; ++step) first.step(data.batch, 8, 0.05f);
  first.parameters().set_loss_scale({1024, 7, 0, 2});
  model::write_checkpoint(path, some_header(), first.parameters());

  const auto host = make_cpu_backend({std::vector<std::vector<int>>(1)});
  const auto there = host->make_parameters(first.network(), Precision::fp32);
  model::load_tensors(path, *there, true);
  const auto again = backend->make_parameters(first.network(), Precision::fp16);
  model::load_tensors(path, *again, true);
  CHECK(again->hash() == first.parameters().hash());
  CHECK(*again->loss_scale() == LossScale{1024, 7, 0, 2});
  const auto& slices = there->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    std::vector<float> a(slices[s].tensor.count()), b(a.size());
    there->export_slice(Part::weights, s, a);
    first.parameters().export_slice(Part::weights, s, b);
    INFO(slices[s].tensor.name);
    CHECK(a == b);
  }
}

TEST_CASE("a deterministic run that is saved and resumed ends with the same bits", "[gpu][train]") {
  if (!gpu()) return;
  const Corners data(2);
  for (const Precision precision : all_precisions) {
    train::TrainerSpec spec = spec_of(precision, 1);
    spec.program.deterministic = true;
    const test::Folder folder;
    const auto path = folder.path / "checkpoint.h5";
    const auto backend = gpu();
    Alone world(backend->device());
    train::Trainer whole(spec, *backend, world);
    for (int step = 0; step < 2; ++step) whole.step(data.batch, 2, 0.05f);
    model::write_checkpoint(path, some_header(), whole.parameters());
    for (int step = 0; step < 2; ++step) whole.step(data.batch, 2, 0.05f);

    const auto other = gpu();
    Alone other_world(other->device());
    train::Trainer resumed(spec, *other, other_world);
    model::load_tensors(path, resumed.parameters(), true);
    for (int step = 0; step < 2; ++step) resumed.step(data.batch, 2, 0.05f);
    INFO(to_string(precision));
    CHECK(resumed.parameters().hash() == whole.parameters().hash());
  }
}
