#include "data/image/percentiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/data/element_bytes.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t bins = 1 << 16;
constexpr std::uint32_t sign = 0x80000000u;

/// Numbers in the order of the floats.
std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // no -0
  return (bits & sign) != 0 ? ~bits : bits | sign;
}
float value_of(std::uint32_t key) {
  return std::bit_cast<float>((key & sign) != 0 ? key ^ sign : ~key);
}

/// The values of rank first and second, weighed.
struct Wanted {
  std::uint64_t first = 0, second = 0;
  double share_of_second = 0;
};

Wanted wanted_of(double percent, std::uint64_t values) {
  const double place = percent / 100 * static_cast<double>(values - 1);
  const auto first = std::min(static_cast<std::uint64_t>(place), values - 1);
  return {first, std::min(first + 1, values - 1), place - static_cast<double>(first)};
}

/// Ranks of one channel, found in two passes: by the upper half of a key, then by the lower one.
class Ranks {
 public:
  Ranks() : upper_(bins) {}
  void count_upper(std::uint32_t key) { ++upper_[key >> 16]; }
  void count_lower(std::uint32_t key) {
    if (const auto found = lower_.find(key >> 16); found != lower_.end())
      ++found->second[key % bins];
  }
  std::uint64_t values() const {
    std::uint64_t values = 0;
    for (const std::uint64_t count : upper_) values += count;
    return values;
  }
  /// Between the passes.
  void want(std::uint64_t rank) { lower_[bin_of(upper_, rank).first].resize(bins); }
  float at(std::uint64_t rank) const {
    const auto [upper, rest] = bin_of(upper_, rank);
    const std::uint32_t lower = bin_of(lower_.at(upper), rest).first;
    return value_of(upper << 16 | lower);
  }

 private:
  /// The bin that holds the rank, and its rank in there.
  static std::pair<std::uint32_t, std::uint64_t> bin_of(const std::vector<std::uint64_t>& counts,
                                                        std::uint64_t rank) {
    std::uint32_t bin = 0;
    for (; bin + 1 < bins && rank >= counts[bin]; ++bin) rank -= counts[bin];
    return {bin, rank};
  }

  std::vector<std::uint64_t> upper_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> lower_;
};

}  // namespace

std::vector<std::vector<double>> percentiles(const DataSetInfo& rows,
                                             std::span<const double> percents,
                                             const EachRow& each_row) {
  std::vector<Ranks> ranks(rows.channels);
  const auto pass = [&](auto count) {
    each_row([&](std::span<const std::uint8_t> row) {
      for_each_value(rows.element, row, [&](std::size_t i, float value) {
        if (!stands_for_none(rows.no_data, value)) count(ranks[i % rows.channels], key_of(value));
      });
    });
  };
  pass([](Ranks& of, std::uint32_t key) { of.count_upper(key); });
  std::vector<std::uint64_t> values;
  for (Ranks& of : ranks) {
    values.push_back(of.values());
    if (values.back() == 0) continue;
    for (const double percent : percents) {
      const Wanted wanted = wanted_of(percent, values.back());
      of.want(wanted.first);
      of.want(wanted.second);
    }
  }
  pass([](Ranks& of, std::uint32_t key) { of.count_lower(key); });
  std::vector<std::vector<double>> found;
  for (const double percent : percents) {
    std::vector<double>& of_percent = found.emplace_back();
    for (std::size_t c = 0; c < rows.channels; ++c) {
      if (values[c] == 0) {
        of_percent.push_back(std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      const Wanted wanted = wanted_of(percent, values[c]);
      const double first = ranks[c].at(wanted.first), second = ranks[c].at(wanted.second);
      of_percent.push_back(first + wanted.share_of_second * (second - first));
    }
  }
  return found;
}

}  // namespace lockstep::data
