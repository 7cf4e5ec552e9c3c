// The backend around the kernels: its streams, its copies from pinned memory, what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/device/gpus.hpp"
#include "tests/emulated/gpu.hpp"
#include "tests/support/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// Conditions for one test case.
struct Under {
  explicit Under(const emulated::Conditions& conditions) { emulated::conditions() = conditions; }
  ~Under() { emulated::conditions() = {}; }
};

/// Four steps of two micro-batches, whose pinned bytes change as soon as the step is over; the hash
/// of all that was learned, and the losses.
struct Trained {
  std::uint32_t hash = 0;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

Trained train(const Case& c, Precision precision) {
  constexpr std::size_t rows = 3;
  Compiled compiled(c, rows, make_cuda_backend(0), precision);
  const std::size_t row_bytes = c.network.input.count();
  const PinnedBuffer pinned = compiled.backend->device().allocate_pinned(2 * rows * row_bytes);
  const UpdateRule rule{0.9f, true,
                        std::vector<float>(compiled.parameters->layout().slices.size(), 1e-3f)};
  Trained trained;
  for (std::size_t step = 0; step < 4; ++step) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(pinned.data());
    for (std::size_t i = 0; i < 2 * rows * row_bytes; ++i)
      bytes[i] = static_cast<std::uint8_t>((i + step * 5) * 37 % 251);
    const StepScalars scalars{0.05f, 1.f / (2 * rows), 0.5f};
    for (const bool second : {false, true}) {
      data::Batch batch;
      batch.images = bytes + (second ? rows * row_bytes : 0);
      batch.targets = c.targets.data();
      batch.rows = batch.capacity = rows;
      compiled.program->set_scalars(scalars);
      compiled.program->load(batch);
      for (const TapeStep& piece : compiled.program->forward()) piece.run();
      for (const TapeStep& piece : compiled.program->backward(second)) piece.run();
    }
    compiled.backend->judge_gradients(*compiled.parameters);
    compiled.backend->update(*compiled.parameters, rule, scalars, 0,
                             compiled.parameters->layout().learned_slices);
    compiled.backend->update_statistics(*compiled.parameters, 2);
    trained.losses.push_back(compiled.program->take_metrics().loss);
    std::memset(pinned.data(), 0xee, pinned.size());
  }
  trained.hash = compiled.parameters->hash();
  return trained;
}

}  // namespace

TEST_CASE("training gives the same bits whenever streams and threads do their work", "[backend]") {
  using emulated::Order;
  using emulated::Streams;
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const Case c(bottlenecks(), 3, 5);
    const Trained usual = train(c, precision);
    CHECK(usual.losses.back() == usual.losses.back());
    for (const Streams streams : {Streams::eager, Streams::late, Streams::others_first})
      for (const Order order : {Order::reverse, Order::shuffled}) {
        emulated::Conditions conditions;
        conditions.streams = streams;
        conditions.order = order;
        const Under under(conditions);
        INFO(to_string(precision) << ", streams " << static_cast<int>(streams) << ", threads "
                                  << static_cast<int>(order));
        CHECK(train(c, precision) == usual);
      }
  }
}

TEST_CASE("what a GPU lacks is said with what was found and what is needed", "[backend]") {
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
             Contains("serves CUDA up to 11.8") && Contains("install a newer driver"));
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
