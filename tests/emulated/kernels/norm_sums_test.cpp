// The order in which batch norm's sums are made.
#include "tests/emulated/cuda/gpu.hpp"

#include <numeric>

// Kernels' code, for which gpu.hpp comes first.
#include "ports/cuda/kernels/norm_sums.cuh"
#include "tests/emulated/kernels/norm_fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// The sum of f(row) over all rows, in the order that the kernels promise: each thread adds its
/// rows in fp32, the last one first, a block adds its threads by halves; then, in double, 32 lanes
/// add every 32nd block, and the lanes are added: each time with as many parts as a block has
/// threads for.
template <class F>
double sum_in_order(const Matrix& shape, const F& f) {
  const Columns cut = sum_columns(shape);
  const std::size_t blocks = cut.grid.x, threads = cut.block.y;
  const std::size_t parts = block_threads / (2 * sum_width * cut.block.x);
  std::vector<std::vector<double>> lanes(sum_lanes);
  for (std::size_t b = 0; b < blocks; ++b) {
    std::vector<float> sums(threads);
    for (std::size_t t = 0; t < threads; ++t)
      for (std::size_t row = b * threads + t; row < shape.rows; row += blocks * threads)
        sums[t] += f(shape.rows - 1 - row);
    for (std::size_t half = threads / 2; half > 0; half /= 2)
      for (std::size_t t = 0; t < half; ++t) sums[t] += sums[t + half];
    lanes[b % sum_lanes].push_back(static_cast<double>(sums[0]));
  }
  const auto sum = [&](const std::vector<double>& values) {
    std::vector<double> of_parts(parts);
    for (std::size_t i = 0; i < values.size(); ++i) of_parts[i % parts] += values[i];
    return std::accumulate(of_parts.begin(), of_parts.end(), 0.);
  };
  std::vector<double> of_lanes;
  for (const auto& lane : lanes) of_lanes.push_back(sum(lane));
  return sum(of_lanes);
}

}  // namespace

TEST_CASE("a batch norm's sums have one order, whichever block is the last to arrive", "[kernel]") {
  // One block; fewer blocks than lanes; more; several columns of blocks with more.
  for (const Matrix& shape : {Matrix{3, 8}, {4500, 8}, {40000, 8}, {1100, 264}}) {
    INFO(shape.rows << " x " << shape.channels << ", " << sum_columns(shape).grid.x << " blocks");
    const Storage storage = Storage::fp16;
    const std::vector<double> x = input(shape, storage),
                              g = rounded(storage, some_values(shape.count(), 9));
    const Values stored(storage, x), gradient(storage, g);
    DeviceScalars scalars;
    const NormBackward op{gradient.data(), nullptr, stored.data(), Mask::none, nullptr, nullptr};
    const Outputs got = in_every_order([&](cudaStream_t stream) {
      Norm norm(shape);
      for (int launches = 0; launches < 2; ++launches) {  // the tickets serve the next one, too
        norm_statistics(stored.data(), shape, storage, norm.parameters(), norm.per_channel(),
                        norm.scratch(), stream);
        norm_gradients(op, shape, storage, norm.parameters(), norm.per_channel(), false, &scalars,
                       norm.scratch(), stream);
      }
      return Outputs{norm.numbers.read(), norm.gradients.read()};
    });
    const auto channels = static_cast<std::size_t>(shape.channels);
    for (std::size_t c = 0; c < channels; ++c) {
      const auto value = [&](const std::vector<double>& of, std::size_t row) {
        return static_cast<float>(of[row * channels + c]);
      };
      const auto d = [&](std::size_t row) { return value(x, row) - value(x, shape.rows - 1); };
      const auto m = backend::arithmetic::moments(
          sum_in_order(shape, d), sum_in_order(shape, [&](std::size_t r) { return d(r) * d(r); }),
          static_cast<double>(shape.rows), value(x, shape.rows - 1));
      const auto array = [&](std::size_t k) {
        return static_cast<float>(got[0][k * channels + c]);
      };
      REQUIRE(array(0) == static_cast<float>(m.mean));
      REQUIRE(array(4) == static_cast<float>(m.variance));
      const auto wanted = backend::arithmetic::norm_gradient(
          sum_in_order(shape, [&](std::size_t r) { return value(g, r); }),
          sum_in_order(shape,
                       [&](std::size_t r) { return value(g, r) * (value(x, r) - array(0)); }),
          static_cast<double>(shape.rows), array(2), array(1));
      REQUIRE(got[1][c] == static_cast<double>(wanted.dgamma));
      REQUIRE(got[1][channels + c] == static_cast<double>(wanted.dbeta));
    }
  }
}
