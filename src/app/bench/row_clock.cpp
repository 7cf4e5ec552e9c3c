#include "app/bench/row_clock.hpp"

#include <algorithm>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/data/augment/augment.hpp"

namespace lockstep::app {

double RoundTimes::smallest() const { return *std::min_element(values.begin(), values.end()); }

double RoundTimes::largest() const { return *std::max_element(values.begin(), values.end()); }

double RoundTimes::spread() const { return smallest() > 0 ? largest() / smallest() - 1 : 0; }

RowClock::RowClock(const data::DataSet& rows, const data::AugmentSpec& how,
                   const data::SamplerSpec& order)
    : rows_(rows),
      reader_(rows, how),
      sampler_(order),
      image_(reader_.row_bytes()),
      floats_(image_.size()) {}

void RowClock::measure(double seconds) {
  Sums sums;
  const std::uint64_t epoch = rows_.info().rows;
  const double end = now_s() + seconds;
  while (now_s() < end || sums.rows == 0) {
    if (taken_ == epoch) {
      works_.clear();
      sums = {};
    }
    take_row(taken_++, sums);
  }
  add(sums);
}

void RowClock::take_row(std::uint64_t count, Sums& sums) {
  const std::uint64_t epoch = count / rows_.info().rows;
  const std::size_t row = sampler_.row(epoch, count % rows_.info().rows);
  reader_.measure(&sums.times);
  reader_.read(epoch, row, image_);
  double mark = now_s();
  data::normalise(rows_.info(), image_, floats_.data());
  sums.normalise_s += now_s() - mark;
  const std::size_t bytes = rows_.row_bytes(row);
  stored_.resize(std::max(stored_.size(), bytes));
  mark = now_s();
  checksum_ = crc32c(stored_.data(), bytes, checksum_);
  sums.crc_s += now_s() - mark;
  sums.stored_bytes += static_cast<double>(bytes);
  ++sums.rows;
}

void RowClock::add(const Sums& sums) {
  const auto rows = static_cast<double>(sums.rows);
  const double stored = sums.stored_bytes / rows, made = static_cast<double>(image_.size());
  struct Timed {
    const char* name;
    double seconds, bytes;
  };
  const Timed parts[] = {{"read", std::max(0.0, sums.times.read_s - sums.crc_s), stored},
                         {"crc", sums.crc_s, stored},
                         {"decode", sums.times.decode_s, stored},
                         {"crop_resize_flip", sums.times.shape_s, made},
                         {"jitter", sums.times.colour_s, made},
                         {"normalise", sums.normalise_s, made}};
  if (works_.empty())
    for (const Timed& part : parts) works_.push_back({part.name, {}, part.bytes});
  for (std::size_t i = 0; i < works_.size(); ++i)
    works_[i].seconds.values.push_back(parts[i].seconds / rows);
}

}  // namespace lockstep::app
