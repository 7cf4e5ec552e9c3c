#include "data/external/wanted_rows.hpp"

#include <cmath>
#include <limits>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {

std::size_t WantedRows::rows() const {
  return outputs_ == 0 ? 0 : (task_ == Task::labels ? labels_.size() : values_.size()) / outputs_;
}

void WantedRows::add(float wanted) {
  if (task_ == Task::values) return values_.push_back(wanted);
  labels_.push_back(std::isnan(wanted) ? unknown_label : static_cast<std::uint8_t>(wanted));
}

void WantedRows::append(const WantedRows& more) {
  if (outputs_ == 0) *this = WantedRows(more.task_, more.outputs_);
  check(more.task_ == task_ && more.outputs_ == outputs_, "files of one task and as many outputs");
  labels_.insert(labels_.end(), more.labels_.begin(), more.labels_.end());
  values_.insert(values_.end(), more.values_.begin(), more.values_.end());
}

float WantedRows::of(std::size_t row, std::size_t output) const {
  const std::size_t at = row * outputs_ + output;
  if (task_ == Task::values) return values_.at(at);
  const std::uint8_t label = labels_.at(at);
  return label == unknown_label ? std::numeric_limits<float>::quiet_NaN() : label;
}

WantedRows WantedRows::picked(std::span<const std::size_t> rows) const {
  WantedRows picked(task_, outputs_);
  for (const std::size_t row : rows)
    for (std::size_t k = 0; k < outputs_; ++k) picked.add(of(row, k));
  return picked;
}

std::uint32_t WantedRows::hash(std::uint32_t before) const {
  before = crc32c(labels_.data(), labels_.size(), before);
  return crc32c(values_.data(), values_.size() * sizeof(float), before);
}

TargetMoments measure_targets(const WantedRows& wanted) {
  TargetMoments found;
  for (std::size_t k = 0; k < wanted.outputs(); ++k) {
    const auto over_known = [&](auto&& term) {
      double sum = 0, known = 0;
      for (std::size_t row = 0; row < wanted.rows(); ++row) {
        const double value = wanted.of(row, k);
        if (std::isnan(value)) continue;
        sum += term(value);
        known += 1;
      }
      return known > 0 ? sum / known : 0;
    };
    const double mean = over_known([](double value) { return value; });
    const double variance =
        over_known([&](double value) { return (value - mean) * (value - mean); });
    found.mean.push_back(static_cast<float>(mean));
    const auto deviation = static_cast<float>(std::sqrt(variance));
    found.stddev.push_back(deviation > 0 ? deviation : 1);
  }
  return found;
}

}  // namespace lockstep::data
