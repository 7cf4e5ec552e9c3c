#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Mean and deviation of each channel of rows whose elements are not uint8 (see ChannelSums), in
/// units of the values. Sums of whole numbers are exact, so that any grouping of the rows gives the
/// same. Sums of floats are doubles, of the distance from the median of the first row: the same
/// rows in the same order give the same.
class ElementSums {
 public:
  ElementSums(Element element, std::size_t channels);
  void add(std::span<const std::uint8_t> row);
  std::vector<float> mean() const;
  /// The population's. A constant channel gets deviation 1.
  std::vector<float> stddev() const;
  std::vector<std::size_t> constant() const;  ///< the channels that have one value

 private:
  __extension__ using Wide = __int128;
  struct Channel {
    std::uint64_t values = 0;
    Wide sum = 0, squares = 0;                             // of whole numbers
    double pivot = 0, distance = 0, distance_squares = 0;  // of floats
    double mean(bool whole) const;
    double deviation(bool whole) const;
  };
  template <class T>
  void add_whole(std::span<const std::uint8_t> row);
  template <class T>
  void add_floats(std::span<const std::uint8_t> row);

  Element element_;
  std::vector<Channel> channels_;
};

}  // namespace lockstep::data
