#include "lockstep/data/image/channel_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

namespace lockstep::data {
namespace {

/// Sums sixteen pixels in parallel, in 32 bits as long as these can hold the squares.
template <std::size_t channels>
std::size_t add_sixteens(const std::uint8_t* from, std::size_t bytes, std::int64_t* sum,
                         std::int64_t* squares) {
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

// Rows may be unaligned.
template <class T>
T load(std::span<const std::uint8_t> row, std::size_t index) {
  T value;
  std::memcpy(&value, row.data() + index * sizeof(T), sizeof(T));
  return value;
}

constexpr double least_deviation = 1e-30;  // 1 over it must be a float, too

/// A float16 comes as its bits.
double as_double(std::uint16_t bits) { return static_cast<double>(widen_f16(bits)); }
double as_double(float value) { return static_cast<double>(value); }

}  // namespace

void ChannelSums::add(std::span<const std::uint8_t> row) {
  check(!channels_.empty(), "sums over no channels");
  switch (element_) {
    case Element::u8:
      return add_whole<std::uint8_t>(row);
    case Element::u16:
      return add_whole<std::uint16_t>(row);
    case Element::i16:
      return add_whole<std::int16_t>(row);
    case Element::f16:
      return add_floats<std::uint16_t>(row);
    case Element::f32:
      return add_floats<float>(row);
  }
}

template <class T>
void ChannelSums::add_whole(std::span<const std::uint8_t> row) {
  const std::size_t channels = channels_.size(), pixels = row.size() / sizeof(T) / channels;
  check(pixels < std::size_t{1} << 31, "squares of a row within 64 bits");
  std::vector<std::int64_t> sum(channels), squares(channels);
  std::vector<std::uint64_t> values(channels, pixels);
  std::size_t done = 0;
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    if (channels == 1 && !no_data_)
      done = add_sixteens<1>(row.data(), row.size(), sum.data(), squares.data());
    if (channels == 3 && !no_data_)
      done = add_sixteens<3>(row.data(), row.size(), sum.data(), squares.data());
  }
  for (std::size_t p = done / channels; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c) {
      const std::int64_t value = load<T>(row, p * channels + c);
      if (!is_data(static_cast<double>(value))) {
        --values[c];
        continue;
      }
      sum[c] += value;
      squares[c] += value * value;
    }
  for (std::size_t c = 0; c < channels; ++c) {
    channels_[c].values += values[c];
    channels_[c].sum += sum[c];
    channels_[c].squares += squares[c];
  }
}

template <class T>
void ChannelSums::add_floats(std::span<const std::uint8_t> row) {
  const std::size_t channels = channels_.size(), pixels = row.size() / sizeof(T) / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    Channel& channel = channels_[c];
    if (channel.values > 0) continue;
    std::vector<double> values;
    for (std::size_t p = 0; p < pixels; ++p)
      if (const double value = as_double(load<T>(row, p * channels + c)); is_data(value))
        values.push_back(value);
    if (values.empty()) continue;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    channel.pivot = *middle;
  }
  for (std::size_t p = 0; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c) {
      const double value = as_double(load<T>(row, p * channels + c));
      if (!is_data(value)) continue;
      const double distance = value - channels_[c].pivot;
      ++channels_[c].values;
      channels_[c].distance += distance;
      channels_[c].distance_squares += distance * distance;
    }
}

bool ChannelSums::is_data(double value) const {
  return !no_data_ || !(value != value || value == static_cast<double>(*no_data_));
}

std::uint64_t ChannelSums::values() const {
  std::uint64_t values = 0;
  for (const Channel& channel : channels_) values += channel.values;
  return values;
}

void ChannelSums::add(const ChannelSums& other) {
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    Channel& channel = channels_[c];
    const Channel& added = other.channels_[c];
    if (added.values == 0) continue;
    if (channel.values == 0) {
      channel = added;
      continue;
    }
    const auto n = static_cast<double>(added.values);
    const double between = added.pivot - channel.pivot;
    channel.values += added.values;
    channel.sum += added.sum;
    channel.squares += added.squares;
    channel.distance += added.distance + n * between;
    channel.distance_squares +=
        added.distance_squares + between * (2 * added.distance + n * between);
  }
}

double ChannelSums::mean_of(const Channel& channel) const {
  if (channel.values == 0) return 0;
  const auto n = static_cast<double>(channel.values);
  return is_float(element_) ? channel.pivot + channel.distance / n
                            : static_cast<double>(channel.sum) / n;
}

double ChannelSums::deviation_of(const Channel& channel) const {
  if (channel.values == 0) return 0;
  const auto n = static_cast<double>(channel.values);
  if (element_ == Element::u8) {
    const double mean = mean_of(channel);
    const double variance = static_cast<double>(channel.squares) / n - mean * mean;
    // A thousandth of a grey level is rounding, or as good as constant.
    return variance < 1e-6 ? 0 : std::sqrt(variance);
  }
  const double deviation =
      is_float(element_)
          ? std::sqrt(std::max(
                0.0, (channel.distance_squares - channel.distance / n * channel.distance) / n))
          : std::sqrt(static_cast<double>(Wide(channel.values) * channel.squares -
                                          channel.sum * channel.sum)) /
                n;
  return deviation > least_deviation ? deviation : 0;
}

std::vector<float> ChannelSums::mean() const {
  const double unit = element_ == Element::u8 ? 255 : 1;
  std::vector<float> mean;
  for (const Channel& channel : channels_)
    mean.push_back(static_cast<float>(mean_of(channel) / unit));
  return mean;
}

std::vector<float> ChannelSums::stddev() const {
  const double unit = element_ == Element::u8 ? 255 : 1;
  std::vector<float> stddev;
  for (const Channel& channel : channels_) {
    const double deviation = deviation_of(channel);
    stddev.push_back(deviation > 0 ? static_cast<float>(deviation / unit) : 1.0f);
  }
  return stddev;
}

std::vector<std::size_t> ChannelSums::constant() const {
  std::vector<std::size_t> found;
  for (std::size_t c = 0; c < channels_.size(); ++c)
    if (!(deviation_of(channels_[c]) > 0)) found.push_back(c);
  return found;
}

std::vector<std::uint64_t> ChannelSums::words() const {
  std::vector<std::uint64_t> words;
  for (const Channel& one : channels_)
    for (const std::uint64_t word :
         {one.values, static_cast<std::uint64_t>(one.sum >> 64),
          static_cast<std::uint64_t>(one.sum), static_cast<std::uint64_t>(one.squares >> 64),
          static_cast<std::uint64_t>(one.squares), std::bit_cast<std::uint64_t>(one.pivot),
          std::bit_cast<std::uint64_t>(one.distance),
          std::bit_cast<std::uint64_t>(one.distance_squares)})
      words.push_back(word);
  return words;
}

void ChannelSums::set_words(std::span<const std::uint64_t> words) {
  check(words.size() == channels_.size() * words_a_channel, "sums of these channels");
  const auto wide = [](std::uint64_t high, std::uint64_t low) {
    return static_cast<Wide>(high) << 64 | static_cast<Wide>(low);
  };
  const std::uint64_t* word = words.data();
  for (Channel& one : channels_) {
    one = {word[0],
           wide(word[1], word[2]),
           wide(word[3], word[4]),
           std::bit_cast<double>(word[5]),
           std::bit_cast<double>(word[6]),
           std::bit_cast<double>(word[7])};
    word += words_a_channel;
  }
}

}  // namespace lockstep::data
