#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/text/choices.hpp"

// What happens to a value before its channel's mean and deviation: it is brought between limits,
// and then put through a curve. One arithmetic for statistics, the CPU and GPUs: curves are
// computed in double and rounded once, so that a GPU's fused products change a float in one of
// about 10^8 values at most.
namespace lockstep::data {

enum class Curve : std::uint8_t { linear, log1p, asinh };

struct Shaping {
  Curve curve = Curve::linear;
  std::vector<float> low = {}, high = {};  ///< of each channel; empty: no limits
  bool operator==(const Shaping&) const = default;
  bool any() const { return curve != Curve::linear || !low.empty(); }
  float lowest(std::size_t channel) const {
    return low.empty() ? std::numeric_limits<float>::lowest() : low[channel];
  }
  float highest(std::size_t channel) const {
    return high.empty() ? std::numeric_limits<float>::max() : high[channel];
  }
};

/// "0,1.5;2,30": the limits of each channel; of all, where they are alike. Empty: there are none.
std::string limits_text(const Shaping& shaping);
/// "clip 0,1.5, curve log1p"; empty where values stay as they are.
std::string say_shaping(const Shaping& shaping);

/// A limit as it is asked for: a number, or a percentile (0 to 100) of the channel's values.
struct AskedLimit {
  double number = 0;
  bool is_percentile = false;
};
struct AskedLimits {
  AskedLimit low, high;
};
/// The limits of data.clip: "0,1", "p2,p98", "0,1;2,30". One for all channels or one for each of
/// them. Throws InputError naming the key.
std::vector<AskedLimits> asked_limits(std::string_view text);
/// Those of one channel.
inline const AskedLimits& limits_of(const std::vector<AskedLimits>& asked, std::size_t channel) {
  return asked[asked.size() == 1 ? 0 : channel];
}
/// Whether some of them are percentiles, which depend on the data.
bool asks_percentiles(std::string_view text);

/// The natural logarithm of a finite number above 0, to about 1e-15.
constexpr double log_of(double x) {
  constexpr std::uint64_t fraction = (std::uint64_t{1} << 52) - 1, one = std::uint64_t{1023} << 52;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double m = std::bit_cast<double>((bits & fraction) | one);
  double exponent = static_cast<double>(bits >> 52) - 1023;
  if (m > 1.4142135623730951) {
    m /= 2;
    exponent += 1;
  }
  // log m = 2 artanh s
  const double s = (m - 1) / (m + 1), q = s * s;
  double series = 0;
  for (int k = 21; k >= 1; k -= 2) series = series * q + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * s * series;
}

/// NaN where the curve has no value: log1p of -1 and less.
constexpr float curved(Curve curve, float value) {
  const double v = static_cast<double>(value), size = v < 0 ? -v : v;
  if (curve == Curve::linear) return value;
  if (curve == Curve::log1p) {
    if (size < 0x1p-29) return value;  // below, 1 + v is rounded
    if (!(v > -1)) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(log_of(1 + v));
  }
  const double y =
      size < 0x1p-12 ? size - size * size * size / 6 : log_of(size + std::sqrt(size * size + 1));
  return static_cast<float>(v < 0 ? -y : y);
}

/// Of a value that does not stand for no data.
constexpr float shaped(Curve curve, float value, float low, float high) {
  return curved(curve, value < low ? low : value > high ? high : value);
}

inline float shaped(const Shaping& by, std::size_t channel, float value) {
  return shaped(by.curve, value, by.lowest(channel), by.highest(channel));
}

/// The value that a curve brings to `shaped`.
inline double uncurved(Curve curve, double shaped) {
  return curve == Curve::linear  ? shaped
         : curve == Curve::log1p ? std::expm1(shaped)
                                 : std::sinh(shaped);
}

}  // namespace lockstep::data

template <>
struct lockstep::Choices<lockstep::data::Curve> {
  using enum data::Curve;
  static constexpr Choice<data::Curve> all[] = {
      {linear, "linear"}, {log1p, "log1p"}, {asinh, "asinh"}};
};
