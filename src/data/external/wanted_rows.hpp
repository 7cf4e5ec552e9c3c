#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// What the rows of a data set should say, where each is not of one class: for each row as many
/// labels (1, 0, or NaN where it is not known) or numbers. A label takes a byte.
class WantedRows {
 public:
  WantedRows() = default;
  WantedRows(Task task, std::size_t outputs) : task_(task), outputs_(outputs) {}
  Task task() const { return task_; }
  std::size_t outputs() const { return outputs_; }  ///< of a row
  std::size_t rows() const;
  /// The next output, row after row.
  void add(float wanted);
  /// The rows of another file with as many outputs.
  void append(const WantedRows& more);
  float of(std::size_t row, std::size_t output) const;
  WantedRows picked(std::span<const std::size_t> rows) const;
  /// A checksum that continues `before`.
  std::uint32_t hash(std::uint32_t before) const;

 private:
  static constexpr std::uint8_t unknown_label = 255;
  Task task_ = Task::classes;
  std::size_t outputs_ = 0;
  std::vector<std::uint8_t> labels_;
  std::vector<float> values_;
};

/// Mean and deviation of each value, where it is known, by the order of the rows. A value that is
/// the same in all rows has deviation 1, one that is nowhere known mean 0.
struct TargetMoments {
  std::vector<float> mean, stddev;
};
TargetMoments measure_targets(const WantedRows& wanted);

}  // namespace lockstep::data
