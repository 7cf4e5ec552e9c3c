#pragma once

#include "ports/cpu/plan/bands.hpp"
#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// Copies images [rows, height, width, channels] between the two sides of an option-A shortcut:
/// every stride-th pixel of the wide side to or from the middle channels of the deep side.
/// Everything else becomes zero.
class Shortcut {
 public:
  /// That of `unit`, which has `pad`, for this chunk.
  Shortcut(const Context& context, const Unit& unit, const Chunk& chunk);
  void pad(const std::byte* wide, std::byte* deep) const;
  /// Some lines of one image; both begin with the batch's first image.
  void pad(const Band& band, const std::byte* wide, std::byte* deep) const;
  void unpad(const std::byte* deep, std::byte* wide) const;

 private:
  template <class Copy>
  void each_pixel(const Copy& copy) const;
  template <class Copy>
  void each_pixel_of_line(std::size_t image, std::size_t line, const Copy& copy) const;
  std::size_t line_bytes() const { return to_.width * to_.channels * value_bytes_; }

  nn::Shape from_, to_;
  std::size_t rows_, stride_, value_bytes_;
};

}  // namespace lockstep::cpu
