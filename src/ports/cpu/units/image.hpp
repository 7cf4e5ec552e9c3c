#pragma once

#include <map>

#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// The network's input: uint8 rows in the loader's memory. They are normalised chunk by chunk where
/// a convolution reads them, in forward and again in backward, so that normalised images are never
/// stored.
class Image {
 public:
  explicit Image(Context& context);
  void plan(std::size_t region);
  void load(const std::uint8_t* images) { rows_[c.slot] = {images, nullptr}; }
  void load_normalised(const float* images) { rows_[c.slot] = {nullptr, images}; }
  /// [rows, height, width, channels] in the lane's scratch.
  const std::byte* value(const Chunk& chunk) const;
  /// Whole pixels, `count` values from `first` on in the batch.
  void values(std::size_t first, std::size_t count, std::byte* out) const;

 private:
  Context& c;
  std::size_t row_values_;
  std::map<std::size_t, std::size_t> places_;  // in the scratch of each region that reads it
  float scale_[48], shift_[48];  // (v / 255 - mean) / deviation, one period of 48 values
  struct LoadedRows {
    const std::uint8_t* bytes = nullptr;
    const float* floats = nullptr;
  };
  std::vector<LoadedRows> rows_;  // by slot
};

}  // namespace lockstep::cpu
