// The backend around the kernels: its streams, its copies from pinned memory, its errors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/infer/classifier.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::backend;
using namespace lockstep::infer;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// Conditions for one test case.
struct Under {
  explicit Under(const emulated::Conditions& conditions) { emulated::conditions() = conditions; }
  ~Under() { emulated::conditions() = {}; }
};

constexpr std::size_t rows = 3, steps = 3;

/// Batches of two micro-batches in a ring of two pinned slots, like the loader's.
class Feed {
 public:
  Feed(const Case& c, Device& device) : case_(c), row_bytes_(c.network.input.count()) {
    for (PinnedBuffer& slot : slots_) slot = device.allocate_pinned(2 * rows * row_bytes_);
  }
  void fill(std::size_t step) {
    std::byte* bytes = slots_[step % 2].data();
    for (std::size_t i = 0; i < slots_[0].size(); ++i)
      bytes[i] = static_cast<std::byte>((i + step * 5) * 37 % 251);
  }
  void spoil(std::size_t step) { std::memset(slots_[step % 2].data(), 0xee, slots_[0].size()); }
  data::Batch batch(std::size_t step, bool second) const {
    data::Batch batch;
    batch.images = reinterpret_cast<const std::uint8_t*>(slots_[step % 2].data()) +
                   (second ? rows * row_bytes_ : 0);
    batch.targets = case_.targets.data();
    batch.rows = batch.capacity = rows;
    batch.index = step;
    return batch;
  }

 private:
  const Case& case_;
  std::size_t row_bytes_;
  PinnedBuffer slots_[2];
};

/// The hash of everything learned in some steps of two micro-batches, and the losses.
struct Trained {
  std::uint32_t hash = 0;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

struct How {
  Precision precision = Precision::fp32;
  bool prefetch = false;
  std::size_t slots = 1;  ///< 2: both micro-batches run forward before the first one's backward
  Recompute recompute = {};
};

/// A slot's bytes change as soon as its step has ended.
Trained train(const Case& c, const How& how) {
  Compiled compiled(c, rows, make_cuda_backend(0), how.precision);
  ProgramSpec spec = compiled.program->spec();
  spec.slots = how.slots;
  spec.recompute = how.recompute;
  compiled.program = compiled.backend->compile(c.network, spec, *compiled.parameters);
  Program& program = *compiled.program;
  Feed feed(c, compiled.backend->device());
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f, .nesterov = true},
                               .weight_decay = std::vector<float>(layout.slices.size(), 1e-3f)};
  const optim::StepScalars scalars{
      .lr = 0.05f, .gradient_scale = 1.f / (2 * rows), .statistics_share = 0.5f};
  Trained trained;
  feed.fill(0);
  for (std::size_t step = 0; step < steps; ++step) {
    const auto backward = [&](bool second) {
      program.select(second ? how.slots - 1 : 0);
      for (const TapeStep& piece : program.backward(second)) piece.run();
    };
    for (const bool second : {false, true}) {
      program.select(second ? how.slots - 1 : 0);
      program.set_scalars(scalars);
      program.load(feed.batch(step, second));
      for (const TapeStep& piece : program.forward()) piece.run();
      if (how.slots == 1) backward(second);
    }
    if (how.slots == 2)
      for (const bool second : {false, true}) backward(second);
    compiled.backend->judge_gradients(*compiled.parameters);
    compiled.backend->update(*compiled.parameters, rule, scalars, 0, layout.learned_slices);
    compiled.backend->update_statistics(*compiled.parameters, 2);
    feed.fill(step + 1);
    if (how.prefetch) program.prefetch(feed.batch(step + 1, false));
    trained.losses.push_back(program.take_metrics().loss);
    feed.spoil(step);
  }
  trained.hash = compiled.parameters->hash();
  return trained;
}

}  // namespace

TEST_CASE(
    "training gives the same bits whatever the order of streams and threads, with the next "
    "batch copied at the same time or not",
    "[backend]") {
  using emulated::Order;
  using emulated::Streams;
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const Case c(bottlenecks(), rows, 5);
    const Trained usual = train(c, {precision});
    CHECK(usual.losses.size() == steps);
    CHECK(usual.losses.back() == usual.losses.back());
    for (const bool prefetch : {false, true})
      for (const auto& [streams, order] : {std::pair{Streams::eager, Order::reverse},
                                           {Streams::late, Order::shuffled},
                                           {Streams::others_first, Order::shuffled}}) {
        emulated::Conditions conditions;
        conditions.streams = streams;
        conditions.order = order;
        const Under under(conditions);
        INFO(to_string(precision) << ", streams " << static_cast<int>(streams) << ", threads "
                                  << static_cast<int>(order) << (prefetch ? ", prefetched" : ""));
        CHECK(train(c, {precision, prefetch}) == usual);
      }
  }
}

TEST_CASE(
    "with two micro-batches in flight and values made again, training gives the same bits in any "
    "order of streams",
    "[backend][slots][recompute]") {
  using emulated::Streams;
  const Case c(padded_shortcuts(), rows, 5);
  const Recompute again{.mode = Recompute::Mode::segments, .segments = 3};
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const Trained usual = train(c, {precision});
    for (const Streams streams : {Streams::eager, Streams::late, Streams::others_first})
      for (const std::size_t slots : {1u, 2u}) {
        emulated::Conditions conditions;
        conditions.streams = streams;
        const Under under(conditions);
        INFO(to_string(precision) << ", streams " << static_cast<int>(streams) << ", " << slots
                                  << " slots");
        CHECK(train(c, {precision, true, slots, again}) == usual);
      }
  }
}

TEST_CASE("a mark of progress is reached when all work before it is done", "[backend]") {
  emulated::Conditions conditions;
  conditions.streams = emulated::Streams::late;
  const Under under(conditions);
  const auto backend = make_cuda_backend(0);
  Device& device = backend->device();
  CHECK(*device.progress_word() == 0);
  device.mark_progress(3);
  std::uint64_t meanwhile = 99;
  emulated::enqueue(dynamic_cast<cuda::CudaDevice&>(device).compute().get(),
                    [&] { meanwhile = *device.progress_word(); });
  device.mark_progress(4);
  CHECK(*device.progress_word() == 0);
  device.compute().synchronize();
  CHECK(meanwhile == 3);
  CHECK(*device.progress_word() == 4);
}

TEST_CASE("a copy of the next batch does not wait for the step that runs", "[backend]") {
  emulated::Conditions conditions;
  conditions.streams = emulated::Streams::late;
  const Under under(conditions);
  const Case c(plain(), rows, 5);
  Compiled compiled(c, rows, make_cuda_backend(0), Precision::fp32);
  Feed feed(c, compiled.backend->device());
  Program& program = *compiled.program;
  feed.fill(0);
  feed.fill(1);
  program.load(feed.batch(0, false));
  bool ran = false;
  program.forward().front().run();
  auto& device = dynamic_cast<cuda::CudaDevice&>(compiled.backend->device());
  emulated::enqueue(device.compute().get(), [&] { ran = true; });
  program.prefetch(feed.batch(1, false));
  device.copy().synchronize();
  CHECK_FALSE(ran);
  program.load(feed.batch(1, false));
  program.take_metrics();
  CHECK(ran);
}

TEST_CASE("a batch without targets gives the logits of one with targets, and counts nowhere",
          "[backend]") {
  const Case c(bottlenecks(), rows, 5);
  const Compiled compiled(c, rows, make_cuda_backend(0), Precision::fp32);
  Inference inference(*compiled.backend, c.network, compiled.program->spec(), *compiled.parameters);
  Feed feed(c, compiled.backend->device());
  feed.fill(0);
  const auto logits = [&](bool labelled) {
    data::Batch batch = feed.batch(0, false);
    if (!labelled) batch.targets = nullptr;
    inference.run(batch);
    std::vector<float> all;
    for (std::size_t row = 0; row < rows; ++row)
      for (const float logit : inference.logits(row)) all.push_back(logit);
    CHECK(inference.take_metrics().rows == (labelled ? rows : 0));
    return all;
  };
  const std::vector<float> want = logits(true);
  for (const bool labelled : {false, true, false}) CHECK(logits(labelled) == want);
  data::Batch unlabelled = feed.batch(0, false);
  unlabelled.targets = nullptr;
  CHECK_THROWS_AS(compiled.program->load(unlabelled), Error);
}

TEST_CASE("a step's floors are those of the tape's steps, in their order, and of the update",
          "[backend]") {
  const bool fused = GENERATE(false, true);
  const std::size_t segments = GENERATE(0u, 3u);
  const Case c(bottlenecks(), 2, 5);
  ProgramSpec spec;
  spec.batch = 2;
  if (segments > 0) spec.recompute = {.mode = Recompute::Mode::segments, .segments = segments};
  spec.precision = fused ? Precision::fp16 : Precision::fp32;
  spec.fuse_norms = fused;
  spec.mean = spec.stddev = std::vector<float>(c.network.input.channels, 1.f);
  cuda::CudaDevice device(0);
  cuda::ConvPlanner planner(device.compute());
  const GpuRates rates = cuda::measure_rates(device, planner, 32);
  CHECK(rates.bandwidth == Approx(2 * 32 * 32 * 32 * sizeof(float) * 1e3));  // in a lap of 1 ms
  for (const Precision p : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16})
    CHECK(rates.of(p) == Approx(2.0 * 32 * 32 * 32 * 32 * 1e4));  // ten in a lap
  const auto floors = cuda::floors(c.network, cuda::plan_program(c.network, spec, planner), rates);

  const auto backend = make_cuda_backend(0);
  const auto parameters = backend->make_parameters(c.network, spec.precision);
  const auto program = backend->compile(c.network, spec, *parameters);
  std::vector<std::string> tape, best;
  for (const TapeStep& step : program->forward()) tape.push_back(step.name);
  for (const TapeStep& step : program->backward(false)) tape.push_back(step.name);
  tape.emplace_back("update");
  for (const StepFloor& step : floors) {
    best.push_back(step.name);
    CHECK(step.shortest_ms > 0);
  }
  CHECK(best == tape);
}

TEST_CASE("copies are timed one by one, and kernels as parts of a recording", "[backend]") {
  cuda::CudaDevice device(0);
  const device::PinnedBuffer buffer = device.allocate_pinned(1000);
  const auto recorded = [] { return emulated::counts().recorded; };
  const std::size_t before = recorded();
  CHECK(device.upload_rate(buffer) == Approx(1000 * 1e3));  // each lap takes 1 ms
  CHECK(recorded() == before);
  CHECK(device.fastest_recorded_s([] {}) == Approx(1e-4));
  CHECK(recorded() == before + 1);
}

TEST_CASE(
    "memory that is too small is an error before any allocation, which names a batch that fits",
    "[backend]") {
  const nn::Network network = bottlenecks();
  const auto backend = make_cuda_backend(0);
  ProgramSpec spec;
  spec.batch = 64;
  spec.mean = spec.stddev = std::vector<float>(network.input.channels, 1.f);
  emulated::Conditions small;
  small.memory = 3'000'000;
  const Under under(small);
  std::size_t before = 0, after = 0, total = 0, rows_that_fit = 0;
  cudaMemGetInfo(&before, &total);
  std::string said;
  try {
    backend->require_fit(network, spec);
  } catch (const InputError& error) {
    said = error.what();
  }
  cudaMemGetInfo(&after, &total);
  CHECK(before == after);
  INFO(said);
  CHECK(said.find("a micro-batch of 64 rows of " + network.name + " in fp32 needs 0.0") == 0);
  CHECK(said.find("of 0.00 GB are free") != std::string::npos);
  const std::size_t number = said.find("%; ") + 3;
  REQUIRE(std::sscanf(said.c_str() + number, "%zu rows would fit", &rows_that_fit) == 1);
  CHECK(rows_that_fit > 1);
  CHECK(rows_that_fit < 64);
  spec.batch = rows_that_fit;
  const auto parameters = backend->make_parameters(network, spec.precision);
  CHECK_NOTHROW(backend->compile(network, spec, *parameters));
  spec.batch = 2 * rows_that_fit;
  CHECK_THROWS_AS(backend->compile(network, spec, *parameters), InputError);
}

TEST_CASE("a GPU or library that will not do is reported with what was found and what is needed",
          "[backend]") {
  const auto absence = [](const auto& change) {
    emulated::Conditions conditions;
    change(conditions);
    const Under under(conditions);
    const VisibleGpus seen = look_at_gpus();
    CHECK(seen.gpus.empty() == !seen.absence.empty());
    return seen.absence;
  };
  using emulated::Conditions;
  CHECK(absence([](Conditions&) {}).empty());
  CHECK_THAT(absence([](Conditions& c) { c.driver = 0; }), Contains("no NVIDIA driver"));
  CHECK_THAT(absence([](Conditions& c) { c.driver = 11080; }),
             Contains("supports CUDA up to 11.8") && Contains("install a newer driver"));
  CHECK_THAT(absence([](Conditions& c) { c.devices = 0; }), Contains("CUDA_VISIBLE_DEVICES"));
  CHECK_THAT(absence([](Conditions& c) { c.cudnn = 80907; }),
             Contains("needs 9.0.0 or newer") && Contains("was found"));
  CHECK_THAT(absence([](Conditions& c) { c.nccl = 21403; }),
             Contains("NCCL 2.14.3 was found") && Contains("needs 2.18.0"));
  emulated::Conditions old;
  old.major = 7;
  const Under under(old);
  CHECK_THROWS_WITH(make_cuda_backend(0), Contains("compute capability 7.0") && Contains("8.0"));
}
