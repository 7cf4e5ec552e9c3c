// Steps that are recorded as CUDA graphs.
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/train/trainer.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using emulated::Streams;

namespace {

constexpr std::size_t steps = 9, uneven_step = 5;

struct Under {
  explicit Under(Streams streams, emulated::Order order) {
    emulated::conditions().streams = streams;
    emulated::conditions().order = order;
  }
  ~Under() { emulated::conditions() = {}; }
};

/// Doubles gradients on a stream for the network, as a second rank with the same rows would.
class Mirror final : public comm::SilentCommunicator {
 public:
  Mirror() : SilentCommunicator(0, 2, stream_) {}
  void all_reduce(comm::Elements data, comm::Reduction, std::string_view,
                  device::Stream&) override {
    auto* values = static_cast<float*>(data.data);
    emulated::enqueue(stream_.get(), [=] {
      for (std::size_t i = 0; i < data.count; ++i) values[i] *= 2;
    });
  }
  void repeated(std::string_view, std::unique_ptr<device::Event> end) override {
    CHECK_NOTHROW(end->done());
    ++repetitions;
  }
  std::size_t repetitions = 0;

 private:
  cuda::CudaStream stream_{cuda::CudaStream::Priority::high};
};

struct Rows {
  Rows(const nn::Network& network, std::size_t count)
      : pixels(count * network.input.count()), targets(count) {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(i * 37 % 251);
    for (std::size_t i = 0; i < count; ++i) {
      const auto label = static_cast<std::int32_t>(i % network.classes);
      targets[i] = {label, label, 1};
    }
  }
  data::Batch batch(std::size_t step, std::size_t rows) const {
    data::Batch batch;
    batch.images = pixels.data();
    batch.targets = targets.data();
    batch.rows = batch.capacity = rows;
    batch.index = step;
    return batch;
  }
  std::vector<std::uint8_t> pixels;
  std::vector<data::Target> targets;
};

train::TrainerSpec spec_of(const nn::Network& network, Precision precision, bool graph) {
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = 2;
  spec.program.precision = precision;
  spec.program.mean = spec.program.stddev = std::vector<float>(network.input.channels, 0.5f);
  spec.program.keeps_average = true;
  spec.clip_norm = 1;
  spec.average = {.decay = 0.99};
  spec.bucket_bytes = 1 << 10;
  spec.graph = graph;
  return spec;
}

/// What a training leaves, and what the host did for it.
struct Trained {
  std::uint32_t hash = 0;
  std::vector<double> figures;  ///< losses, norms and scales
  std::vector<std::uint64_t> marks;
  std::size_t repetitions = 0;
  std::size_t calls = 0;  ///< of the last step
};

/// Nine steps at different rates; one has fewer rows, and an evaluation comes in between.
Trained run_training(const nn::Network& network, Precision precision, std::size_t micro_batches,
                     bool graph, std::size_t fewer_rows = 1) {
  const std::size_t rows = 2 * micro_batches;
  const Rows data(network, rows);
  const auto backend = make_cuda_backend(0);
  Mirror world;
  const train::TrainerSpec spec = spec_of(network, precision, graph);
  train::Trainer trainer(spec, *backend, world);
  if (const auto scale = trainer.parameters().loss_scale())
    CHECK(scale->scale == 65536 * world.world());
  backend::ProgramSpec evaluation = spec.program;
  evaluation.training = false;
  const auto program = backend->compile(network, evaluation, trainer.parameters());
  Trained trained;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t fewer = step == uneven_step ? fewer_rows : 0;
    const auto next = [&] { return train::NextBatch{data.batch(step + 1, rows), 2 * rows}; };
    world.activity.begin_step(step + 1);
    const std::size_t before = emulated::counts().calls;
    const train::StepReport report =
        trainer.step(data.batch(step, rows - fewer), 2 * (rows - fewer),
                     0.1f / static_cast<float>(step + 1), [&]() -> std::optional<train::NextBatch> {
                       if (step % 3 == 0) return next();
                       return std::nullopt;
                     });
    trained.calls = emulated::counts().calls - before;
    trained.marks.push_back(std::uint64_t{*backend->device().progress_word()});
    CHECK(trained.marks.back() == world.activity.code(comm::Phase::update));
    trained.figures.insert(
        trained.figures.end(),
        {report.metrics.loss, static_cast<double>(report.metrics.rows), *report.gradient_norm});
    for (const double ms : {report.times.forward_ms, report.times.backward_ms,
                            report.times.exposed_comm_ms, report.times.update_ms})
      CHECK(ms > 0);
    if (report.loss_scale) trained.figures.push_back(static_cast<double>(report.loss_scale->scale));
    if (step != 6) continue;
    program->load(data.batch(0, 2));
    for (const TapeStep& piece : program->forward()) piece.run();
    trained.figures.push_back(program->take_metrics().loss);
  }
  trained.hash = trainer.parameters().hash();
  trained.repetitions = world.repetitions;
  return trained;
}

}  // namespace

TEST_CASE(
    "a training whose steps are repeated by one call has the same bits, whatever the order of "
    "streams and threads",
    "[graph]") {
  const nn::Network network = bottlenecks();
  for (const auto& [precision, micro_batches] :
       {std::pair{Precision::fp32, std::size_t{1}}, std::pair{Precision::fp16, std::size_t{2}}}) {
    const Trained usual = run_training(network, precision, micro_batches, false);
    CHECK(usual.repetitions == 0);
    for (const auto& [streams, order] :
         {std::pair{Streams::eager, emulated::Order::forward},
          std::pair{Streams::others_first, emulated::Order::shuffled}}) {
      const Under under(streams, order);
      INFO(to_string(precision) << ", " << micro_batches << " micro-batches, streams "
                                << static_cast<int>(streams));
      const emulated::Counts before = emulated::counts();
      const Trained got = run_training(network, precision, micro_batches, true);
      CHECK(got.hash == usual.hash);
      CHECK(got.figures == usual.figures);
      CHECK(got.marks == usual.marks);
      // A batch lies in one of two places, and work is called once for each before it is
      // recorded. Two micro-batches take the same two places in every step, also after the one
      // with fewer rows, which runs the full program once.
      const std::size_t called = micro_batches == 1 ? 2 : 1, whole = steps - 1;
      CHECK(got.repetitions == whole - called);
      CHECK(emulated::counts().recorded - before.recorded == 2);
      CHECK(emulated::counts().launches - before.launches == micro_batches * (whole - called));
      CHECK(usual.calls > 100);
      CHECK(got.calls < 20 + 10 * micro_batches);
    }
  }
}

TEST_CASE("work that cannot be recorded is an error that says so, and later work runs", "[graph]") {
  cuda::CudaDevice device(0);
  cuda::CudaStream& compute = device.compute();
  cuda::CudaStream network;
  const auto repeater = device.make_repeater();
  int runs = 0;
  const auto count = [&] { emulated::enqueue(compute.get(), [&] { ++runs; }); };
  const auto twice = [&](std::uint64_t key, const std::function<void()>& work) {
    CHECK_FALSE(repeater->run(key, work));
    repeater->run(key, work);
  };
  CHECK_THROWS_WITH(twice(1, [&] { compute.synchronize(); }),
                    Contains("recorded as a CUDA graph") && Contains("cudaStreamSynchronize"));
  const auto unjoined = [&] {
    network.wait(*compute.record());
    emulated::enqueue(network.get(), [] {});
  };
  CHECK_THROWS_WITH(twice(2, unjoined),
                    Contains("as a CUDA graph") && Contains("cudaStreamEndCapture"));
  const auto before = network.record();
  CHECK_THROWS_WITH(twice(3, [&] { compute.wait(*before); }), Contains("as a CUDA graph"));
  bool fails = false;
  const auto failing = [&] {
    count();
    if (fails) throw Error("rank 3 is missing");
    fails = true;
  };
  CHECK_THROWS_WITH(twice(4, failing),
                    Contains("as a CUDA graph") && Contains("rank 3 is missing"));
  runs = 0;
  twice(5, count);
  CHECK(repeater->run(5, count));
  compute.synchronize();
  CHECK(runs == 3);
}

TEST_CASE("a step of fewer micro-batches, all full, repeats no other step's work", "[graph]") {
  const nn::Network network = bottlenecks();
  const Trained usual = run_training(network, Precision::fp32, 5, false, 6);
  const Trained got = run_training(network, Precision::fp32, 5, true, 6);
  CHECK(got.hash == usual.hash);
  CHECK(got.figures == usual.figures);
}
