#include "data/shard/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::data {
namespace {

constexpr double most_error = 0.03, doubtful_error = 0.01;      // of a channel's deviation
constexpr double crowded_share = 0.5, crowded_deviation = 0.1;  // of a level

/// The numbers that become one level. Sums are of their distance from it.
struct Level {
  std::size_t numbers = 0;
  double sum = 0, squares = 0;
};

double deviation_of(double sum, double squares, std::size_t numbers) {
  const auto n = static_cast<double>(numbers);
  return std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
}

/// What is seen of one channel. Sums are of the distance from the first number.
struct Channel {
  double first = 0, sum = 0, squares = 0;
  double errors[2] = {0, 0};  // squares, for each range that may be chosen
  bool levels_only[2] = {true, true};
  std::array<Level, 256> levels[2];
  std::size_t numbers = 0, nan = 0, infinite = 0, bad_row = 0;

  /// Of a constant, whose rounding changes nothing that a network sees: 0.
  double relative_error(std::size_t range) const {
    const double spread = deviation_of(sum, squares, numbers);
    return spread > 0 ? std::sqrt(errors[range] / static_cast<double>(numbers)) / spread : 0;
  }
  /// The share of the numbers that one level takes although they differ; else 0. Few large numbers
  /// make a deviation next to which what these lose is small.
  double crowd(std::size_t range, double level) const {
    const Level& most = *std::ranges::max_element(levels[range], {}, &Level::numbers);
    const double share = static_cast<double>(most.numbers) / static_cast<double>(numbers);
    if (share <= crowded_share) return 0;
    const double differ = deviation_of(most.sum, most.squares, most.numbers);
    return differ > crowded_deviation * level ? share : 0;
  }
};

class Look {
 public:
  Look(const FloatRows& rows, std::vector<Levels> ranges)
      : rows_(rows), ranges_(std::move(ranges)), channels_(rows.form.channels) {
    constexpr std::size_t most_bytes = 64 << 20, most_looks = 128, fewest = 8;
    const std::size_t block = rows.block_rows * rows.form.stored_bytes();
    const std::size_t looks = std::clamp(most_bytes / block, fewest, most_looks);
    std::vector<std::uint8_t> numbers;
    std::size_t next = 0;  // the first row that was not looked at yet
    for (std::size_t look = 0; look < looks; ++look) {
      const std::size_t row = look * (rows.rows - 1) / (looks - 1);
      if (row < next) continue;
      rows.read(row, numbers);
      const std::size_t first = row - row % rows.block_rows, bytes = rows.form.stored_bytes();
      next = first + numbers.size() / bytes;
      for (std::size_t i = 0; i < numbers.size() / bytes; ++i) take(first + i, &numbers[i * bytes]);
    }
  }

  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;

  /// Whether all numbers are levels of this range, but for rounding, and not one and the same.
  bool are_levels(std::size_t range) const {
    const auto are = [&](const Channel& one) {
      return one.nan + one.infinite == 0 && one.levels_only[range];
    };
    return smallest < largest && smallest >= ranges_[range].low - 0.002 &&
           largest <= ranges_[range].high + 0.002 && std::ranges::all_of(channels_, are);
  }

  void require_finite() const {
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      const Channel& one = channels_[c];
      if (one.nan + one.infinite == 0) continue;
      const auto seen = static_cast<double>(one.numbers + one.nan + one.infinite);
      const double share = static_cast<double>(one.nan > 0 ? one.nan : one.infinite) / seen;
      h5::refuse(rows_.path,
                 fmt::format("row {} has {} in channel {}, as {:.3g} % of the looked-at numbers of "
                             "this channel: leave such rows out, or write a number there",
                             one.bad_row, one.nan > 0 ? "NaN (not a number)" : "an infinite number",
                             c, 100 * share));
    }
  }

  /// Returns what is doubtful.
  std::string judge(std::size_t range) const {
    std::size_t worst = 0;
    for (std::size_t c = 1; c < channels_.size(); ++c)
      if (channels_[c].relative_error(range) > channels_[worst].relative_error(range)) worst = c;
    const double error = channels_[worst].relative_error(range);
    const auto [low, high] = ranges_[range];
    const std::string become =
        fmt::format("its floats ({:.4g} to {:.4g}) become 256 levels of {:g} to {:g}, ", smallest,
                    largest, low, high);
    for (std::size_t c = 0; c < channels_.size() && error <= most_error; ++c)
      if (const double share = channels_[c].crowd(range, (high - low) / 255); share > 0)
        return fmt::format(
            "{}of which one takes {:.3g} % of channel {}, whose differences are lost: stretch them",
            become, 100 * share, c);
    if (error <= doubtful_error) return {};
    const std::string what = fmt::format("{}which changes channel {} by {:.2g} % of its deviation",
                                         become, worst, 100 * error);
    if (error <= most_error) return what;
    h5::refuse(rows_.path,
               fmt::format("{}; at most {:g} % is taken: scale them so that they fill 0 to 1 (cut "
                           "off rare large numbers), or set --data.range",
                           what, 100 * most_error));
  }

 private:
  void take(std::size_t row, const std::uint8_t* stored) {
    const PixelForm& form = rows_.form;
    const std::size_t pixels = form.height * form.width;
    form.widen(stored, values_);
    for (std::size_t i = 0; i < values_.size(); ++i)
      take(row, values_[i], channels_[form.channels_first ? i / pixels : i % form.channels]);
  }

  void take(std::size_t row, double value, Channel& to) {
    if (!std::isfinite(value)) {
      if (to.nan + to.infinite == 0) to.bad_row = row;
      ++(std::isnan(value) ? to.nan : to.infinite);
      return;
    }
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    if (to.numbers++ == 0) to.first = value;
    const double distance = value - to.first;
    to.sum += distance;
    to.squares += distance * distance;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const auto [low, high] = ranges_[i];
      if (value < low || value > high) continue;  // half a level more, or an error later
      const double level = (high - low) / 255, nearest = std::round((value - low) / level);
      const double error = value - (low + level * nearest);
      to.errors[i] += error * error;
      if (std::abs(error) > rounding_of_levels * nearest * level) to.levels_only[i] = false;
      Level& among = to.levels[i][static_cast<std::size_t>(nearest)];
      ++among.numbers;
      among.sum += error;
      among.squares += error * error;
    }
  }

  const FloatRows& rows_;
  std::vector<Levels> ranges_;
  std::vector<Channel> channels_;
  std::vector<double> values_;
};

/// Pixels that were normalised for a network cannot be read: its mean is not in the file.
const char* how_to_mend(double smallest, double largest) {
  if (smallest >= -1.002 && largest <= 1.002) return "for -1 to 1 say --data.range -1-1";
  return smallest < 0 ? "if a mean was subtracted from them, write the pixels without that"
                      : "write them in one of these ranges";
}

}  // namespace

std::optional<Levels> find_levels(const FloatRows& rows) {
  const std::vector<Levels> usual = {{0, 1}, {0, 255}};
  const Look look(rows, usual);
  const bool whole = !is_float(rows.form.number);
  for (std::size_t range = whole ? 1 : 0; range < usual.size(); ++range)
    if (look.are_levels(range)) return usual[range];
  return std::nullopt;
}

JudgedLevels judge_levels(const FloatRows& rows, const std::optional<Levels>& given) {
  const std::vector<Levels> usual = {{0, 1}, {0, 255}};
  const Look look(rows, given ? std::vector{*given} : usual);
  look.require_finite();
  if (given) return {*given, look.judge(0)};
  if (look.smallest < -0.002 || look.largest > 255.5)
    h5::refuse(rows.path,
               fmt::format("its floats go from {:.4g} to {:.4g}, which are neither 0 to 1 nor 0 to "
                           "255; {}",
                           look.smallest, look.largest, how_to_mend(look.smallest, look.largest)));
  const std::size_t chosen = look.largest <= 1.002 ? 0 : 1;  // allows half a level more
  return {usual[chosen], look.judge(chosen)};
}

}  // namespace lockstep::data
