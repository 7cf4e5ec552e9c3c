#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/error.hpp"

namespace lockstep::data {

/// Consecutive rows of a data set.
struct RowRange {
  std::size_t first = 0, rows = 0;
};

/// One row is broken: its CRC-32C, its JPEG or its size is wrong. Other rows may be whole. A file
/// that cannot be read at all is a plain InputError.
class BadRow : public InputError {
 public:
  explicit BadRow(const std::string& what) : InputError(what, Ending::bad_data) {}
};

/// What a row should be recognised as: label_a with weight mix and label_b with weight 1 - mix, so
/// that mixup needs no second type. A padding row has label_a = -1 and counts nowhere. With a task
/// other than classes a row has label 0, and Batch::wanted says the rest.
struct Target {
  std::int32_t label_a = -1, label_b = -1;
  float mix = 1;
};

/// One rank's part of a step, in the loader's memory until it is released.
struct Batch {
  /// The bytes of [capacity, height, width, channels] elements, already cropped and flipped.
  const std::uint8_t* images = nullptr;
  /// [capacity]; padding after the first `rows`. nullptr, which only an evaluation takes: what the
  /// rows should be recognised as is not known, and they count nowhere.
  const Target* targets = nullptr;
  /// [capacity, outputs], where the task is not classes: for a label 1 where it applies, else 0,
  /// and shares of both where rows are mixed; for a value the number in deviations from its mean.
  /// NaN is not known.
  const float* wanted = nullptr;
  std::size_t rows = 0;  ///< real rows (0 on a rank without rows in an uneven last batch)
  std::size_t capacity = 0;
  std::uint64_t index = 0;  ///< of this batch in the epoch
  std::uint64_t epoch = 0;  ///< of this batch
  std::size_t slot = 0;     ///< for the loader: which ring slot to give back
};

}  // namespace lockstep::data
