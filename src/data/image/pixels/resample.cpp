#include "data/image/pixels/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data/image/pixels/resample_kernels.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/data/element_bytes.hpp"

namespace lockstep::data {
namespace {

/// The source pixels under the filter of one target pixel, and its weights before normalisation.
struct Filter {
  double scale, reach, inverse;
  std::size_t length;

  explicit Filter(const Axis& axis)
      : scale(static_cast<double>(axis.length) / static_cast<double>(axis.target)),
        reach(std::max(scale, 1.0)),
        inverse(1 / reach),
        length(axis.length) {}
  double centre(std::size_t target) const { return (static_cast<double>(target) + 0.5) * scale; }
  PixelRun under(std::size_t target) const {
    const double at = centre(target), end = static_cast<double>(length);
    return {static_cast<std::size_t>(std::max(at - reach + 0.5, 0.0)),
            static_cast<std::size_t>(std::min(at + reach + 0.5, end))};
  }
  double weight(std::size_t target, std::size_t source) const {
    const double away = (static_cast<double>(source) + 0.5 - centre(target)) * inverse;
    return std::max(1 - std::abs(away), 0.0);
  }
};

const ResampleKernels& resample_kernels() {
  static const ResampleKernels& chosen = *resample_sets().front();
  return chosen;
}

}  // namespace

PixelRun needed(const Axis& axis) {
  const Filter filter(axis);
  return {axis.begin + filter.under(axis.first).begin,
          axis.begin + filter.under(axis.first + axis.count - 1).end};
}

void Resampler::Taps::plan(const Axis& axis, int bits) {
  const Filter filter(axis);
  most = 0;
  first.resize(axis.count);
  for (std::size_t i = 0; i < axis.count; ++i) {
    const PixelRun under = filter.under(axis.first + i);
    first[i] = static_cast<std::uint32_t>(under.begin);
    most = std::max(most, under.end - under.begin);
  }
  weights.assign(axis.count * most, 0);
  const double whole = 1 << bits;
  for (std::size_t i = 0; i < axis.count; ++i) {
    const std::size_t target = axis.first + i;
    const PixelRun under = filter.under(target);
    float* const weight = &weights[i * most];
    double sum = 0;
    for (std::size_t s = under.begin; s < under.end; ++s) sum += filter.weight(target, s);
    std::size_t largest = 0;
    int left = 1 << bits;
    for (std::size_t k = 0; k < under.end - under.begin; ++k) {
      const double share = filter.weight(target, under.begin + k) / sum;
      const int rounded = static_cast<int>(std::lround(share * whole));
      left -= rounded;
      weight[k] = static_cast<float>(rounded);
      if (weight[k] > weight[largest]) largest = k;
    }
    weight[largest] += static_cast<float>(left);
  }
}

void Resampler::run(const Picture& from, const Axis& rows, const Axis& columns, bool flip,
                    std::size_t channels, std::uint8_t* to) {
  check(channels >= 1 && channels <= resample_pixel, "pixels of 1 to 4 bytes");
  const PixelRun across = needed(columns), down = needed(rows);
  check(from.left <= across.begin && from.top <= down.begin, "the picture shows what is needed");
  rows_.plan(rows, column_bits);
  columns_.plan(columns, line_bits);
  for (std::uint32_t& first : columns_.first)
    first -= static_cast<std::uint32_t>(across.begin - columns.begin);
  const std::size_t blocks = (across.end - across.begin + 3) / 4;
  // Weights that are 0 fill up the short lists; their pixels may be after the last column.
  lines_.resize(std::max(lines_.size(), (4 * blocks + columns_.most) * resample_lanes));
  const std::uint8_t* corner = from.pixels + (across.begin - from.left) * resample_pixel;
  const std::size_t line_bytes = columns.count * channels;

  for (std::size_t y = 0; y < rows.count; y += resample_lines) {
    std::uint8_t* lines[resample_lines];
    for (std::size_t i = 0; i < resample_lines; ++i) {
      const std::size_t row = std::min(y + i, rows.count - 1);  // repeats the last one, if need be
      lines[i] = to + row * line_bytes;
      const std::size_t first = rows.begin + rows_.first[row];
      const std::size_t taps = std::min(rows_.most, down.end - first);
      resample_kernels().blend_lines(corner + (first - from.top) * from.stride, from.stride,
                                     &rows_.weights[row * rows_.most], taps, blocks,
                                     &lines_[i * resample_pixel]);
    }
    resample_kernels().blend_columns(lines_.data(), columns_.first.data(), columns_.weights.data(),
                                     columns_.most, columns.count, flip, channels, lines);
  }
}

namespace {

/// A target pixel's sources on one axis.
struct Sources {
  std::size_t first = 0;
  std::vector<double> weights;  // which add up to 1
};

std::vector<Sources> sources_of(const Axis& axis) {
  const Filter filter(axis);
  std::vector<Sources> all;
  for (std::size_t i = axis.first; i < axis.first + axis.count; ++i) {
    const PixelRun under = filter.under(i);
    Sources& one = all.emplace_back(Sources{axis.begin + under.begin, {}});
    double sum = 0;
    for (std::size_t s = under.begin; s < under.end; ++s) {
      one.weights.push_back(filter.weight(i, s));
      sum += one.weights.back();
    }
    for (double& weight : one.weights) weight /= sum;
  }
  return all;
}

/// Of every `stride`-th value from `first` on.
float blend(const float* first, std::size_t stride, const std::vector<double>& weights) {
  double sum = 0, known = 0;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const float value = first[k * stride];
    if (std::isnan(value) || !(weights[k] > 0)) continue;
    sum += weights[k] * static_cast<double>(value);
    known += weights[k];
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (known < 0.5) return std::numeric_limits<float>::quiet_NaN();
  return std::clamp(static_cast<float>(sum / known), low, high);
}

/// A mean of data that would be stored as what stands for none is stored as its neighbour: its
/// sources lie on both sides.
float apart_from_none(const DataSetInfo& of, float value) {
  const float none = of.no_data.value_or(std::numeric_limits<float>::quiet_NaN());
  if (is_float(of.element))
    return value == none ? std::nextafter(value, std::numeric_limits<float>::max()) : value;
  if (std::round(value) != none) return value;
  return value < none ? none - 1 : none + 1;
}

}  // namespace

void ValueResampler::run(const DataSetInfo& of, const std::uint8_t* from, const Axis& rows,
                         const Axis& columns, bool flip, std::uint8_t* to) {
  const std::size_t channels = of.channels, line = of.width * channels;
  values_.resize(of.row_values());
  for_each_value(of.element, {from, of.row_bytes()}, [&](std::size_t i, float value) {
    values_[i] =
        stands_for_none(of.no_data, value) ? std::numeric_limits<float>::quiet_NaN() : value;
  });
  const std::vector<Sources> down = sources_of(rows), across = sources_of(columns);
  line_.resize(line);
  made_.clear();
  for (const Sources& row : down) {
    for (std::size_t i = 0; i < line; ++i)
      line_[i] = blend(&values_[row.first * line + i], line, row.weights);
    for (std::size_t x = 0; x < across.size(); ++x) {
      const Sources& column = across[flip ? across.size() - 1 - x : x];
      for (std::size_t c = 0; c < channels; ++c) {
        const float value = blend(&line_[column.first * channels + c], channels, column.weights);
        append_element(of.element,
                       std::isnan(value) ? of.no_data.value_or(0) : apart_from_none(of, value),
                       made_);
      }
    }
  }
  std::memcpy(to, made_.data(), made_.size());
}

void widen_pixels(const std::uint8_t* from, std::size_t pixels, std::size_t channels,
                  std::uint8_t* to) {
  for (std::size_t i = 0; i < pixels; ++i) std::memcpy(to + 4 * i, from + channels * i, 4);
}

}  // namespace lockstep::data
