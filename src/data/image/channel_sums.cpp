#include "lockstep/data/image/image.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

/// Sums sixteen pixels in parallel, in 32 bits as long as these can hold the squares.
template <std::size_t channels>
std::size_t add_sixteens(const std::uint8_t* from, std::size_t bytes, std::uint64_t* sum,
                         std::uint64_t* squares) {
  constexpr std::size_t lanes = 16 * channels, most = 65'536;
  static_assert(std::uint64_t{255} * 255 * most < std::uint64_t{1} << 32);
  std::size_t done = 0;
  while (bytes - done >= lanes) {
    std::uint32_t values[lanes] = {}, products[lanes] = {};
    const std::size_t turns = std::min((bytes - done) / lanes, most);
    for (std::size_t turn = 0; turn < turns; ++turn, done += lanes)
      for (std::size_t i = 0; i < lanes; ++i) {
        const std::uint32_t value = from[done + i];
        values[i] += value;
        products[i] += value * value;
      }
    for (std::size_t i = 0; i < lanes; ++i) {
      sum[i % channels] += values[i];
      squares[i % channels] += products[i];
    }
  }
  return done;
}

}  // namespace

void ChannelSums::add(std::span<const std::uint8_t> image) {
  const std::size_t channels = sum.size();
  check(channels > 0, "sums over no channels");
  std::size_t done = 0;
  if (channels == 1) done = add_sixteens<1>(image.data(), image.size(), sum.data(), squares.data());
  if (channels == 3) done = add_sixteens<3>(image.data(), image.size(), sum.data(), squares.data());
  for (std::size_t i = done; i < image.size(); ++i) {
    const std::uint32_t value = image[i];
    sum[i % channels] += value;
    squares[i % channels] += value * value;
  }
  pixels += image.size() / channels;
}

void ChannelSums::add(const ChannelSums& other) {
  pixels += other.pixels;
  for (std::size_t c = 0; c < sum.size(); ++c) {
    sum[c] += other.sum[c];
    squares[c] += other.squares[c];
  }
}

std::vector<float> ChannelSums::mean() const {
  std::vector<float> mean;
  for (const std::uint64_t s : sum)
    mean.push_back(static_cast<float>(static_cast<double>(s) / static_cast<double>(pixels) / 255));
  return mean;
}

std::vector<float> ChannelSums::stddev() const {
  std::vector<float> stddev;
  const auto n = static_cast<double>(pixels);
  for (std::size_t c = 0; c < sum.size(); ++c) {
    const double mean = static_cast<double>(sum[c]) / n;
    const double variance = static_cast<double>(squares[c]) / n - mean * mean;
    // A thousandth of a grey level is rounding, or as good as constant.
    stddev.push_back(variance < 1e-6 ? 1.0f : static_cast<float>(std::sqrt(variance) / 255));
  }
  return stddev;
}

}  // namespace lockstep::data
