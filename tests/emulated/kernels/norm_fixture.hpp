#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/emulated/fixture.hpp"

/// What the tests of batch norm's kernels share.
namespace lockstep::test {

constexpr float epsilon = 1e-5f, momentum = 0.1f;

/// A batch norm: its slices, its channels' numbers and the scratch of its sums.
struct Norm {
  explicit Norm(const cuda::Matrix& of)
      : shape(of),
        channels(static_cast<std::size_t>(of.channels)),
        gamma(cuda::Storage::fp32, some_values(channels, 11)),
        beta(cuda::Storage::fp32, some_values(channels, 12)),
        running_mean(cuda::Storage::fp32, some_values(channels, 13)),
        running_var(cuda::Storage::fp32, std::vector<double>(channels, 0.7)),
        gradients(cuda::Storage::fp32, some_values(4 * channels, 14)),
        numbers(cuda::Storage::fp32, cuda::norm_channel_arrays * channels),
        lines(cuda::Storage::fp32, cuda::norm_scratch(of) / sizeof(float)),
        tickets(cuda::norm_tickets(of)) {}
  ~Norm() { CHECK(std::ranges::count(tickets, 0u) == std::ssize(tickets)); }

  cuda::NormParameters parameters() {
    float* g = gradients.floats();
    return {gamma.floats(),
            beta.floats(),
            running_mean.floats(),
            running_var.floats(),
            g,
            g + channels,
            g + 2 * channels,
            g + 3 * channels,
            epsilon,
            momentum};
  }
  cuda::SumScratch scratch() { return {lines.data(), tickets.data()}; }
  cuda::NormChannels per_channel() { return cuda::norm_channels(numbers.floats(), shape.channels); }

  cuda::Matrix shape;
  std::size_t channels;
  Values gamma, beta, running_mean, running_var, gradients, numbers, lines;
  std::vector<unsigned> tickets;
};

/// The values of a channel are around 3, with a separate deviation for each channel.
inline std::vector<double> input(const cuda::Matrix& shape, cuda::Storage storage) {
  std::vector<double> x = some_values(shape.count(), 5);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] =
        3 + x[i] * (0.5 + static_cast<double>(i % static_cast<std::size_t>(shape.channels)) / 64);
  return rounded(storage, x);
}

}  // namespace lockstep::test
