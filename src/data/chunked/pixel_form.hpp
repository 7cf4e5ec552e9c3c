#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// The kind of number that a file stores for a pixel, in this machine's byte order.
enum class Number { u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64 };
std::size_t bytes_of(Number number);
bool is_float(Number number);
std::string name_of(Number number);  ///< "float64"
/// The smallest element that holds all numbers of this kind; f32 for what none holds.
Element element_for(Number number);
Number number_of(Element element);  ///< the numbers that are such elements
/// Whether rows of this element can be made of such numbers at all. Each is looked at, too.
bool may_become(Number number, Element element);
bool may_be(Number number, double value);  ///< whether such a number can have this value

/// How far from level n, in levels, a float may be that was one before it was rounded: n times
/// this. So small numbers next to large ones are no level 0.
inline constexpr double rounding_of_levels = 1e-5;

/// A number that is not a pixel.
struct BadNumber {
  double value = 0;
  std::size_t channel = 0;
  bool is_missing = false;  ///< a number that stands for no data
  double share = 0;         ///< of the numbers of its channel in this row, that are alike
};

/// How a file's row becomes elements [height, width, channels]. Each number must fit exactly, but
/// float64 is rounded to float32. Floats that become uint8 are levels: low .. high become 0 .. 255,
/// rounded to the nearest; they may lie outside by half a level.
struct PixelForm {
  Number number = Number::u8;
  Element element = Element::u8;
  bool only_levels = false;  ///< floats that become uint8 must be levels, but for rounding
  bool channels_first = false;
  std::size_t height = 0, width = 0, channels = 0;
  double low = 0, high = 255;
  /// Numbers that stand for no data, and are errors. These leave `no_data` out.
  std::vector<double> missing = {};
  std::optional<float> no_data = {};  ///< see DataSetInfo

  std::size_t count() const { return height * width * channels; }
  std::size_t stored_bytes() const { return count() * bytes_of(number); }  ///< of a row
  std::size_t row_bytes() const { return count() * bytes_of(element); }
  bool is_same() const;  ///< the stored bytes are the row's: there is nothing to convert
  /// Sets `missing` to those of `values` that a stored number can be.
  void take_missing(const std::vector<double>& values);

  /// Writes a row. Stops at a number that cannot become an element, or that stands for no data, and
  /// returns it. What find_bad() finds in the row it lets pass.
  std::optional<BadNumber> convert(const std::uint8_t* stored, std::uint8_t* row) const;
  /// The first value of a row that is not finite, and is not `no_data`; of uint8: none.
  std::optional<BadNumber> find_bad(const std::uint8_t* row) const;
  /// A row's numbers, in their order.
  void widen(const std::uint8_t* stored, std::vector<double>& values) const;
};

/// The error text for a number of `row` that convert() returned.
std::string not_a_pixel(const PixelForm& form, std::size_t row, const BadNumber& number);

}  // namespace lockstep::data
