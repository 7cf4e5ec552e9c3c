// Tests the emulation itself: it must find the errors that it is made to find.
#include "tests/emulated/cuda/gpu.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "ports/cuda/device.hpp"
#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr unsigned threads = 64;

/// Each thread reads what another one wrote, with or without a barrier in between.
std::vector<double> neighbours(emulated::Order order, bool barrier) {
  emulated::conditions().order = order;
  std::vector<double> shared(threads, -1), read(threads);
  emulated::run_grid(1, threads, [&] {
    const unsigned t = threadIdx.x;
    shared[t] = t;
    if (barrier) __syncthreads();
    read[t] = shared[(t + 1) % threads];
  });
  emulated::conditions().order = emulated::Order::forward;
  return read;
}

}  // namespace

TEST_CASE("a missing barrier shows in another order of the threads", "[emulation]") {
  using emulated::Order;
  CHECK(neighbours(Order::forward, true) == neighbours(Order::reverse, true));
  CHECK(neighbours(Order::forward, true) == neighbours(Order::shuffled, true));
  CHECK(neighbours(Order::forward, false) != neighbours(Order::reverse, false));
  CHECK(neighbours(Order::forward, false) != neighbours(Order::shuffled, false));
}

TEST_CASE("a barrier at which not all threads arrive is an error", "[emulation]") {
  using Catch::Matchers::Contains;
  const auto run = [](void (*kernel)()) { emulated::run_grid(1, threads, kernel); };
  const auto a_lane_is_gone = [] {
    if (threadIdx.x == 5) return;
    __syncwarp();
  };
  const auto two_barriers = [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  };
  const auto a_warp_is_torn = [] {
    if (threadIdx.x % 2)
      __syncthreads();
    else
      __syncwarp();
  };
  CHECK_THROWS_WITH(run(a_lane_is_gone), Contains("not all lanes"));
  CHECK_THROWS_WITH(run(two_barriers), Contains("another thread waits"));
  CHECK_THROWS_WITH(run(a_warp_is_torn), Contains("not all lanes"));
  CHECK(neighbours(emulated::Order::forward, true)[0] == 1);  // and it still works after that
}

TEST_CASE("lanes exchange values, and a block sees what one of its threads found", "[emulation]") {
  for (const auto order : {emulated::Order::forward, emulated::Order::shuffled}) {
    emulated::conditions().order = order;
    std::vector<int> sums(threads), found(2 * threads);
    emulated::run_grid(dim3(2), threads, [&] {
      int sum = static_cast<int>(threadIdx.x);
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      sums[threadIdx.x] = sum;
      found[blockIdx.x * threads + threadIdx.x] =
          __syncthreads_or(blockIdx.x == 1 && threadIdx.x == 40);
    });
    for (unsigned t = 0; t < threads; ++t) {
      CHECK(sums[t] == (t < 32 ? 496 : 1520));
      CHECK(found[t] == 0);
      CHECK(found[threads + t] == 1);
    }
  }
  emulated::conditions().order = emulated::Order::forward;
}

TEST_CASE("a missing edge between two streams shows", "[emulation]") {
  using emulated::Streams;
  for (const Streams streams : {Streams::eager, Streams::late, Streams::others_first})
    for (const bool edge : {true, false}) {
      emulated::conditions().streams = streams;
      cuda::CudaStream first, second;
      int value = 0, seen = -1;
      emulated::enqueue(first.get(), [&] { value = 1; });
      if (edge) second.wait(*first.record());
      emulated::enqueue(second.get(), [&] { seen = value; });
      second.synchronize();
      INFO("conditions " << static_cast<int>(streams) << (edge ? " with" : " without"));
      CHECK(seen == (edge || streams != Streams::late ? 1 : 0));
      first.synchronize();
    }
  emulated::conditions().streams = Streams::eager;
}

TEST_CASE("a launch without blocks is an error, as in CUDA", "[emulation]") {
  const cuda::CudaStream stream;
  cudaLaunchConfig_t config{};
  config.gridDim = 0;
  config.stream = stream.get();
  void (*nothing)(int) = [](int) {};
  CHECK(emulated::launch(&config, nothing, 1) == cudaErrorInvalidConfiguration);
}
