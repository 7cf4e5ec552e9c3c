#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/loading/sampler.hpp"

namespace lockstep::app {

/// The figures of several rounds of one measurement. Other work on the machine only makes things
/// slower: the smallest is the best estimate.
struct RoundTimes {
  std::vector<double> values;
  double smallest() const;
  double largest() const;
  double spread() const;  ///< how much the largest exceeds the smallest: 0.5 is by half
};

/// The time of one kind of work on a row, on one core.
struct RowWork {
  std::string name;
  RoundTimes seconds;  ///< of one row
  double bytes = 0;    ///< of one row, that it passes on
};

/// Does all work on rows, one kind after the other, on the calling thread.
class RowClock {
 public:
  RowClock(const data::DataSet& rows, const data::AugmentSpec& how, const data::SamplerSpec& order);
  /// One round. RoundTimes before the data set was read once are forgotten: they filled caches.
  void measure(double seconds);
  const std::vector<RowWork>& works() const { return works_; }

 private:
  struct Sums {
    data::RowTimes times;
    double crc_s = 0, normalise_s = 0, stored_bytes = 0;
    std::uint64_t rows = 0;
  };
  void take_row(std::uint64_t count, Sums& sums);
  void add(const Sums& sums);

  const data::DataSet& rows_;
  data::RowReader reader_;
  data::Sampler sampler_;
  std::vector<std::uint8_t> image_, stored_;
  std::vector<float> floats_;
  std::vector<RowWork> works_;
  std::uint64_t taken_ = 0;
  std::uint32_t checksum_ = 0;
};

}  // namespace lockstep::app
