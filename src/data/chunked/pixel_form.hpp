#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

/// The kind of number that a file stores for a pixel, in this machine's byte order.
enum class Number { u8, i8, u16, i16, u32, i32, u64, i64, f32, f64 };
std::size_t bytes_of(Number number);
bool is_float(Number number);

/// A number that is not a pixel.
struct BadNumber {
  double value = 0;
  std::size_t channel = 0;
  bool is_missing = false;  ///< a number that stands for no data
};

/// How a file's row becomes pixels: uint8, [height, width, channels]. Whole numbers must be 0 to
/// 255. Floats from low .. high become 0 .. 255, rounded to the nearest; they may lie outside by
/// half a level.
struct PixelForm {
  Number number = Number::u8;
  bool channels_first = false;
  std::size_t height = 0, width = 0, channels = 0;
  double low = 0, high = 255;
  std::vector<double> missing = {};  ///< numbers that stand for no data

  std::size_t count() const { return height * width * channels; }
  std::size_t stored_bytes() const { return count() * bytes_of(number); }  ///< of a row
  bool is_bytes() const { return number == Number::u8 && !channels_first; }
  bool plain() const { return is_bytes() && missing.empty(); }  ///< nothing to convert or to check
  /// Sets `missing` to those of `values` that a stored number can be.
  void take_missing(const std::vector<double>& values);

  /// Writes count() pixels. Stops at a number that is not a pixel (out of range, NaN, no data) and
  /// returns it.
  std::optional<BadNumber> convert(const std::uint8_t* stored, std::uint8_t* pixels) const;
  /// A row's numbers, in their order.
  void widen(const std::uint8_t* stored, std::vector<double>& values) const;
};

/// The error text for a number of `row` that convert() returned.
std::string not_a_pixel(const PixelForm& form, std::size_t row, const BadNumber& number);

}  // namespace lockstep::data
