#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Exact sums over pixels, so that any grouping of the rows gives the same mean and deviation.
struct ChannelSums {
  std::uint64_t pixels = 0;
  std::vector<std::uint64_t> sum, squares;  ///< per channel, of the uint8 values

  explicit ChannelSums(std::size_t channels) : sum(channels), squares(channels) {}
  void add(std::span<const std::uint8_t> image);
  void add(const ChannelSums& other);
  /// Mean and population deviation of value / 255. A constant channel gets deviation 1.
  std::vector<float> mean() const;
  std::vector<float> stddev() const;
};

}  // namespace lockstep::data
