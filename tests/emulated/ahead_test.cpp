// Steps that the host launches without waiting for the device.
#include <catch2/catch.hpp>

#include <cstring>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/trainer.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using emulated::Streams;

namespace {

constexpr std::size_t steps = 9, known_steps = 4, rows = 2;

struct Under {
  explicit Under(Streams streams) { emulated::conditions().streams = streams; }
  ~Under() { emulated::conditions() = {}; }
};

class GpuWorld final : public comm::SilentCommunicator {
 public:
  GpuWorld() : SilentCommunicator(0, 1, stream_) {}

 private:
  cuda::CudaStream stream_;
};

/// The batches of all steps, in memory that the device reads when their turn comes.
struct Batches {
  Batches(const nn::Network& network, device::Device& device)
      : row_bytes(network.input.count()),
        memory(device.allocate_pinned(steps * rows * (row_bytes + sizeof(data::Target)))) {
    for (std::size_t i = 0; i < steps * rows * row_bytes; ++i)
      memory.data()[i] = static_cast<std::byte>(i * 37 % 251);
    for (std::size_t i = 0; i < steps * rows; ++i) {
      const auto label = static_cast<std::int32_t>(i % network.classes);
      targets()[i] = {label, label, 1};
    }
  }
  data::Target* targets() const {
    return reinterpret_cast<data::Target*>(memory.data() + steps * rows * row_bytes);
  }
  data::Batch of(std::size_t step) const {
    data::Batch batch;
    batch.images = reinterpret_cast<const std::uint8_t*>(memory.data() + step * rows * row_bytes);
    batch.targets = targets() + step * rows;
    batch.rows = batch.capacity = rows;
    batch.index = step;
    return batch;
  }
  /// As the loader's threads do with a batch that was given back.
  void overwrite(std::size_t step) {
    std::memset(memory.data() + step * rows * row_bytes, 0xab, rows * row_bytes);
    for (std::size_t i = 0; i < rows; ++i) targets()[step * rows + i] = {0, 0, 1};
  }
  std::size_t row_bytes;
  device::PinnedBuffer memory;
};

/// What a training leaves, and in how many calls the host may have waited in its later steps.
struct Trained {
  std::uint32_t hash = 0;
  std::vector<double> figures;
  std::size_t waits = 0, idle_times = 0;
};

Trained run_training(const nn::Network& network, bool graph, bool reads_each) {
  const auto backend = make_cuda_backend(0);
  GpuWorld world;
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = rows;
  spec.program.precision = Precision::fp16;
  spec.program.mean = spec.program.stddev = std::vector<float>(network.input.channels, 0.5f);
  spec.clip_norm = 1;
  spec.graph = graph;
  train::Trainer trainer(spec, *backend, world);
  const std::size_t ahead = backend->device().steps_ahead();
  Batches batches(network, backend->device());
  Trained trained;
  std::size_t unread = 0;
  const auto read = [&] {
    for (bool first = true; unread > 0; first = false, --unread) {
      const train::StepReport report = trainer.report();
      trained.figures.insert(trained.figures.end(),
                             {report.metrics.loss, static_cast<double>(report.metrics.rows),
                              static_cast<double>(report.metrics.top1), *report.gradient_norm,
                              static_cast<double>(report.loss_scale->scale)});
      CHECK(report.idle_ms.has_value() == !first);
      CHECK(report.times.forward_ms > 0);
      CHECK(report.times.update_ms > 0);
      trained.idle_times += report.idle_ms ? 1 : 0;
    }
  };
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t before = emulated::counts().waits;
    trainer.launch(batches.of(step), rows, 0.1f / static_cast<float>(step + 1),
                   [&]() -> std::optional<train::NextBatch> {
                     if (step % 3 == 0) return train::NextBatch{batches.of(step + 1), rows};
                     return std::nullopt;
                   });
    ++unread;
    trainer.let_run(ahead);
    if (step >= known_steps) trained.waits += emulated::counts().waits - before;
    if (step >= ahead) batches.overwrite(step - ahead);
    if (reads_each || step < known_steps) read();
  }
  read();
  trained.hash = trainer.parameters().hash();
  return trained;
}

/// What a run of two epochs writes about its steps, and what ended it early.
struct Run {
  std::vector<double> figures;
  std::string error;
  std::size_t waits = 0;
};

Run run(const Folder& folder, const std::string& name, config::Config config) {
  config.model = "resnet20";
  config.data.train = (folder.path / "train.h5").string();
  config.out = (folder.path / name).string();
  config.batch = rows;
  config.epochs = 2;
  config.data.workers = 1;
  config.checkpoint.every_epochs = 0;
  config.tune = config::Switch::off;  // two measurements may choose other bits
  train::RunSpec spec;
  spec.config = config;
  spec.binding_report = [](const auto&) { return std::string("{}"); };
  spec.started_s = now_s();
  const auto backend = make_cuda_backend(0);
  GpuWorld world;
  comm::LoneControl control;
  Run result;
  const std::size_t before = emulated::counts().waits;
  try {
    train::run_training(spec, *backend, world, control);
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  result.waits = emulated::counts().waits - before;
  observe::read_records(folder.path / name / "metrics.jsonl", [&](const observe::Record& record) {
    if (const auto* step = std::get_if<observe::StepRecord>(&record)) {
      result.figures.insert(result.figures.end(),
                            {static_cast<double>(step->step), step->loss, step->top1,
                             static_cast<double>(step->lr), step->gradient_norm.value_or(0)});
      CHECK(step->times.other_ms >= 0);
      CHECK(step->times.total_ms() > 0);
    }
    if (const auto* epoch = std::get_if<observe::EpochRecord>(&record))
      result.figures.insert(result.figures.end(), {epoch->train_loss, epoch->train_top1});
    return true;
  });
  return result;
}

}  // namespace

TEST_CASE(
    "between two reports the host makes no call that waits for the device, and each step's figures "
    "are its own",
    "[ahead]") {
  const nn::Network network = bottlenecks();
  const Trained want = run_training(network, false, true);
  CHECK(want.idle_times == 0);
  for (const bool graph : {false, true})
    for (const Streams streams : {Streams::eager, Streams::late, Streams::others_first}) {
      const Under under(streams);
      INFO((graph ? "recorded" : "called") << ", streams " << static_cast<int>(streams));
      const Trained got = run_training(network, graph, false);
      CHECK(got.hash == want.hash);
      CHECK(got.figures == want.figures);
      CHECK(got.waits == 0);
      CHECK(got.idle_times == steps - known_steps - 1);
    }
}

TEST_CASE("a run that reads several steps together writes the same records", "[ahead]") {
  const Folder folder;
  data::DataSetInfo info = small_info();
  info.height = info.width = 8;
  constexpr std::size_t steps_of_an_epoch = 9;
  write_shard(folder.path / "train.h5", info, 0, rows * steps_of_an_epoch);
  config::Config config;
  config.optim.clip_norm = 1;
  config.graph = config::Switch::off;
  config::Config each = config;
  each.audit.every_steps = 1;  // which reads each step
  const Run want = run(folder, "each", each);
  CHECK(want.error.empty());
  CHECK(want.figures.size() == 2 * (5 * steps_of_an_epoch + 2));
  for (const bool graph : {false, true}) {
    config.graph = graph ? config::Switch::on : config::Switch::off;
    const Run got = run(folder, graph ? "graph" : "together", config);
    CHECK(got.error.empty());
    CHECK(got.figures == want.figures);
    CHECK(got.waits < want.waits);
  }
}

TEST_CASE("a run that diverges says in which step, also when it reads later", "[ahead]") {
  const Folder folder;
  data::DataSetInfo info = small_info();
  info.height = info.width = 8;
  write_shard(folder.path / "train.h5", info, 0, rows * 9);
  config::Config config;
  config.optim.lr = 1e9f;
  config.optim.warmup_epochs = 2;
  config::Config each = config;
  each.audit.every_steps = 1;
  const Run want = run(folder, "each", each), got = run(folder, "together", config);
  CHECK_THAT(want.error, Contains("the loss is") && Contains("at step"));
  const auto message = [](const Run& run) { return run.error.substr(0, run.error.find(": ")); };
  CHECK(message(got) == message(want));
  CHECK(got.figures == want.figures);
}
