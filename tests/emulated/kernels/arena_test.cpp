// The update, the running statistics and the search for overflows, over an arena cut into chunks.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// Three slices: of one quad, of several chunks with an odd end, and of 100 floats.
const std::vector<Chunk> chunks = {
    {0, 4, 0}, {16, chunk_floats, 1}, {16 + chunk_floats, 1028, 1}, {5152, 100, 2}};
constexpr std::size_t arena = 5264;
const std::vector<float> decay = {0, 1e-2f, 1e-3f};

bool covered(std::size_t i, std::size_t first, std::size_t last, std::size_t* slice) {
  for (std::size_t k = first; k < last; ++k)
    if (i >= chunks[k].offset && i < chunks[k].offset + chunks[k].count) {
      *slice = chunks[k].slice;
      return true;
    }
  return false;
}

struct State {
  std::vector<double> w = rounded(Storage::fp32, some_values(arena, 1)),
                      v = rounded(Storage::fp32, some_values(arena, 2)),
                      g = rounded(Storage::fp32, some_values(arena, 3));
};

Outputs run_update(const State& from, bool nesterov, Storage storage, const DeviceScalars& scalars,
                   std::size_t first, std::size_t count, cudaStream_t stream) {
  Values w(Storage::fp32, from.w), v(Storage::fp32, from.v), g(Storage::fp32, from.g);
  Values copies(storage, arena);
  UpdateArgs args{};
  args.chunks = chunks.data();
  args.first_chunk = first;
  args.chunk_count = count;
  args.weight_decay = decay.data();
  args.momentum = 0.9f;
  args.nesterov = nesterov;
  args.gradients = g.floats();
  args.weights = w.floats();
  args.velocities = v.floats();
  args.copies = storage == Storage::fp32 ? nullptr : copies.data();
  args.storage = storage;
  args.scalars = &scalars;
  sgd_update(args, stream);
  return {w.read(), v.read(), copies.read()};
}

}  // namespace

TEST_CASE("the update of a span of chunks: momentum, Nesterov, decay by slice, loss scale, copies",
          "[kernel]") {
  DeviceScalars scalars;
  scalars.step.lr = 0.1f;
  scalars.inverse_scale = 1.f / 256;
  const State from;
  for (const Storage storage : all_storages)
    for (const bool nesterov : {false, true})
      for (const auto& [first, count] : {std::pair{0, 4}, {1, 2}, {3, 1}, {2, 0}}) {
        const auto begin = static_cast<std::size_t>(first), span = static_cast<std::size_t>(count);
        INFO(to_string(storage) << (nesterov ? ", Nesterov" : "") << ", chunks from " << first);
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          return run_update(from, nesterov, storage, scalars, begin, span, stream);
        });
        std::vector<double> w = from.w, v = from.v, copies(arena, NAN);
        for (std::size_t i = 0; i < arena; ++i) {
          std::size_t slice = 0;
          if (!covered(i, begin, begin + span, &slice)) continue;
          const double g = from.g[i] / 256 + double{decay[slice]} * w[i];
          v[i] = 0.9 * v[i] + g;
          w[i] -= 0.1 * (nesterov ? g + 0.9 * v[i] : v[i]);
          copies[i] = w[i];
        }
        check_near(got[0], w, 2e-7, "weights");
        check_near(got[1], v, 2e-7, "momentum");
        if (storage != Storage::fp32) check_near(got[2], copies, precision_of(storage), "copies");
      }
}

TEST_CASE("a step that is not applied changes nothing", "[kernel]") {
  DeviceScalars scalars;
  scalars.step.lr = 0.1f;
  scalars.apply = 0;
  const State from;
  const Outputs got = in_every_order([&](cudaStream_t stream) {
    return run_update(from, true, Storage::fp16, scalars, 0, 4, stream);
  });
  check_near(got[0], from.w, 0, "weights");
  check_near(got[1], from.v, 0, "momentum");
  CHECK(std::all_of(got[2].begin(), got[2].end(), [](double v) { return std::isnan(v); }));
}

TEST_CASE("running statistics fade by each slice's share, unless the step is skipped", "[kernel]") {
  const std::vector<float> kept = {0.5f, 0.9f, 0.81f};
  const State from;
  for (const std::uint32_t apply : {1u, 0u}) {
    DeviceScalars scalars;
    scalars.apply = apply;
    const Outputs got = in_every_order([&](cudaStream_t stream) {
      Values fresh(Storage::fp32, from.g), running(Storage::fp32, from.w);
      update_running_statistics(
          {chunks.data(), 1, 3, kept.data(), fresh.floats(), running.floats(), &scalars}, stream);
      return Outputs{running.read()};
    });
    std::vector<double> want = from.w;
    for (std::size_t i = 0; i < arena; ++i) {
      std::size_t slice = 0;
      if (apply && covered(i, 1, 4, &slice)) want[i] = double{kept[slice]} * want[i] + from.g[i];
    }
    check_near(got[0], want, 2e-7, "running");
  }
}

TEST_CASE("one overflow anywhere skips the step and halves the scale; the next one is judged again",
          "[kernel]") {
  const std::size_t count = 70004;
  for (const float spoiler : {INFINITY, -INFINITY, NAN})
    for (const std::size_t where : {std::size_t{0}, std::size_t{33333}, count - 1}) {
      INFO(spoiler << " at " << where);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values gradients(Storage::fp32, some_values(count, 1));
        DeviceScalars scalars;
        scalars.loss_scale = {1024, 5, 0, 0};
        Outputs out;
        for (const bool spoiled : {false, true, false}) {
          gradients.floats()[where] = spoiled ? spoiler : 3e38f;  // large, but a number
          judge(gradients.floats(), count, &scalars, stream);
          out.push_back({static_cast<double>(scalars.apply), double{scalars.inverse_scale} * 1024,
                         double{scalars.loss_scale.scale},
                         static_cast<double>(scalars.loss_scale.good_steps),
                         static_cast<double>(scalars.loss_scale.skipped),
                         static_cast<double>(scalars.overflow)});
        }
        return out;
      });
      CHECK(got[0] == std::vector<double>{1, 1, 1024, 6, 0, 0});
      CHECK(got[1] == std::vector<double>{0, 1, 512, 0, 1, 0});
      CHECK(got[2] == std::vector<double>{1, 2, 512, 1, 1, 0});
    }
}

TEST_CASE("the step's numbers and the loss scale go to the device", "[kernel]") {
  const CudaStream stream;
  DeviceScalars scalars;
  scalars.overflow = scalars.apply = 7;
  set_scalars(&scalars, {0.3f, 0.5f, 0.25f}, stream.get());
  set_loss_scale(&scalars, {512, 3, 1, 9}, stream.get());
  CHECK(scalars.step ==
        optim::StepScalars{.lr = 0.3f, .gradient_scale = 0.5f, .statistics_share = 0.25f});
  CHECK(scalars.loss_scale == LossScale{512, 3, 1, 9});
  CHECK(scalars.inverse_scale == 1.f / 512);
  CHECK(scalars.overflow == 0);
  CHECK(scalars.apply == 1);
}

TEST_CASE("weights are converted, and gradients in any storage added to the arena's", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const std::size_t count : {std::size_t{4}, std::size_t{1020}, std::size_t{5000}}) {
      INFO(to_string(storage) << ", " << count);
      const std::vector<double> from = rounded(Storage::fp32, some_values(count, 1));
      const std::vector<double> made = rounded(storage, from);
      const std::vector<double> old = rounded(Storage::fp32, some_values(count, 2));
      Values weights(Storage::fp32, from);
      const Values gradient(storage, made);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values copy(storage, count), fresh(Storage::fp32, count), sum(Storage::fp32, old);
        convert_weights(weights.floats(), count, storage, copy.data(), stream);
        add_gradient(gradient.data(), count, storage, false, fresh.floats(), stream);
        add_gradient(gradient.data(), count, storage, true, sum.floats(), stream);
        return Outputs{copy.read(), fresh.read(), sum.read()};
      });
      std::vector<double> sum = made;
      for (std::size_t i = 0; i < count; ++i) sum[i] += old[i];
      check_near(got[0], made, 0, "copy");
      check_near(got[1], made, 0, "gradient");
      check_near(got[2], sum, 1e-7, "sum");
    }
}
