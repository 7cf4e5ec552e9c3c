#include "data/image/element_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

namespace lockstep::data {
namespace {

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

ElementSums::ElementSums(Element element, std::size_t channels)
    : element_(element), channels_(channels) {
  check(element != Element::u8 && channels > 0, "elements of other kinds than uint8");
}

void ElementSums::add(std::span<const std::uint8_t> row) {
  switch (element_) {
    case Element::u16:
      return add_whole<std::uint16_t>(row);
    case Element::i16:
      return add_whole<std::int16_t>(row);
    case Element::f16:
      return add_floats<std::uint16_t>(row);
    case Element::f32:
      return add_floats<float>(row);
    case Element::u8:
      break;
  }
  throw Error("sums of another element");
}

template <class T>
void ElementSums::add_whole(std::span<const std::uint8_t> row) {
  const std::size_t channels = channels_.size(), pixels = row.size() / sizeof(T) / channels;
  check(pixels < std::size_t{1} << 31, "squares of a row within 64 bits");
  std::vector<std::int64_t> sum(channels), squares(channels);
  for (std::size_t p = 0; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c) {
      const std::int64_t value = load<T>(row, p * channels + c);
      sum[c] += value;
      squares[c] += value * value;
    }
  for (std::size_t c = 0; c < channels; ++c) {
    channels_[c].values += pixels;
    channels_[c].sum += sum[c];
    channels_[c].squares += squares[c];
  }
}

template <class T>
void ElementSums::add_floats(std::span<const std::uint8_t> row) {
  const std::size_t channels = channels_.size(), pixels = row.size() / sizeof(T) / channels;
  for (std::size_t c = 0; c < channels; ++c) {
    Channel& channel = channels_[c];
    if (channel.values == 0) {
      std::vector<double> values;
      for (std::size_t p = 0; p < pixels; ++p)
        values.push_back(as_double(load<T>(row, p * channels + c)));
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>(pixels / 2);
      std::nth_element(values.begin(), middle, values.end());
      channel.pivot = *middle;
    }
    channel.values += pixels;
  }
  for (std::size_t p = 0; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c) {
      const double distance = as_double(load<T>(row, p * channels + c)) - channels_[c].pivot;
      channels_[c].distance += distance;
      channels_[c].distance_squares += distance * distance;
    }
}

double ElementSums::Channel::mean(bool whole) const {
  const auto n = static_cast<double>(values);
  return whole ? static_cast<double>(sum) / n : pivot + distance / n;
}

double ElementSums::Channel::deviation(bool whole) const {
  const auto n = static_cast<double>(values);
  if (whole) return std::sqrt(static_cast<double>(Wide(values) * squares - sum * sum)) / n;
  return std::sqrt(std::max(0.0, (distance_squares - distance / n * distance) / n));
}

std::vector<float> ElementSums::mean() const {
  std::vector<float> mean;
  for (const Channel& channel : channels_)
    mean.push_back(static_cast<float>(channel.mean(!is_float(element_))));
  return mean;
}

std::vector<float> ElementSums::stddev() const {
  std::vector<float> stddev;
  for (const Channel& channel : channels_) {
    const double deviation = channel.deviation(!is_float(element_));
    stddev.push_back(deviation > least_deviation ? static_cast<float>(deviation) : 1.0f);
  }
  return stddev;
}

std::vector<std::size_t> ElementSums::constant() const {
  std::vector<std::size_t> found;
  for (std::size_t c = 0; c < channels_.size(); ++c)
    if (!(channels_[c].deviation(!is_float(element_)) > least_deviation)) found.push_back(c);
  return found;
}

}  // namespace lockstep::data
