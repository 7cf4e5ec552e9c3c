#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Mean and deviation of each channel of rows of elements. Sums of whole numbers are exact, so that
/// any grouping of the rows gives the same. Values that stand for no data are left out. Sums of
/// floats are doubles, of the distance from the median of the first row: the same rows in the same
/// order, in the same groups, give the same.
class ChannelSums {
 public:
  /// For rows of these channels and elements.
  explicit ChannelSums(const DataSetInfo& rows)
      : element_(rows.element), no_data_(rows.no_data), channels_(rows.channels) {}
  void add(std::span<const std::uint8_t> row);
  void add(const ChannelSums& other);
  /// In the units of DataSetInfo.
  std::vector<float> mean() const;
  /// The population's. A channel of one value, or of none, gets deviation 1.
  std::vector<float> stddev() const;
  std::vector<std::size_t> constant() const;  ///< the channels that have one value, or none
  std::uint64_t values() const;               ///< that were not left out

  /// The sums as numbers, `words_a_channel` for each channel, to be stored.
  std::vector<std::uint64_t> words() const;
  void set_words(std::span<const std::uint64_t> words);
  static constexpr std::size_t words_a_channel = 8;

 private:
  __extension__ using Wide = __int128;
  struct Channel {
    std::uint64_t values = 0;
    Wide sum = 0, squares = 0;                             // of whole numbers
    double pivot = 0, distance = 0, distance_squares = 0;  // of floats
  };
  double mean_of(const Channel& channel) const;
  double deviation_of(const Channel& channel) const;  // 0: a constant
  template <class T>
  void add_whole(std::span<const std::uint8_t> row);
  template <class T>
  void add_floats(std::span<const std::uint8_t> row);

  bool is_data(double value) const;

  Element element_;
  std::optional<float> no_data_;
  std::vector<Channel> channels_;
};

}  // namespace lockstep::data
