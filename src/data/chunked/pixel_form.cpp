#include "data/chunked/pixel_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

/// Calls `use` with a value of the C++ type of `number`.
template <class Use>
auto with_type(Number number, Use use) {
  switch (number) {
    case Number::u8:
      return use(std::uint8_t{});
    case Number::i8:
      return use(std::int8_t{});
    case Number::u16:
      return use(std::uint16_t{});
    case Number::i16:
      return use(std::int16_t{});
    case Number::u32:
      return use(std::uint32_t{});
    case Number::i32:
      return use(std::int32_t{});
    case Number::u64:
      return use(std::uint64_t{});
    case Number::i64:
      return use(std::int64_t{});
    case Number::f32:
      return use(float{});
    case Number::f64:
      return use(double{});
  }
  throw Error("a kind of number without a type");
}

// Rows in chunks may be unaligned.
template <class T>
T load(const std::uint8_t* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// Converts `count` consecutive numbers; false when one is not a pixel value.
template <class T>
bool to_pixels(const std::uint8_t* from, std::size_t count, const PixelForm& form,
               std::uint8_t* to) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    std::memcpy(to, from, count);
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto low = static_cast<T>(form.low), scale = static_cast<T>(255 / (form.high - form.low));
    unsigned bad = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T level = (load<T>(from, i) - low) * scale + T(0.5);
      // NaN is in no range. 256 itself, half a level above the highest, becomes 255.
      const bool good = level >= T(0) && level <= T(256);
      bad |= good ? 0u : 1u;
      to[i] = static_cast<std::uint8_t>(static_cast<int>(good ? std::min(level, T(255.5)) : T(0)));
    }
    return bad == 0;
  } else {
    unsigned bad = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T value = load<T>(from, i);
      const auto level = static_cast<std::uint8_t>(value);
      bad |= value < T(0) || value != static_cast<T>(level) ? 1u : 0u;
      to[i] = level;
    }
    return bad == 0;
  }
}

void interleave(const std::uint8_t* planes, std::size_t pixels, std::size_t channels,
                std::uint8_t* to) {
  if (channels == 3) {
    for (std::size_t i = 0; i < pixels; ++i) {
      to[3 * i] = planes[i];
      to[3 * i + 1] = planes[pixels + i];
      to[3 * i + 2] = planes[2 * pixels + i];
    }
    return;
  }
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < pixels; ++i) to[i * channels + c] = planes[c * pixels + i];
}

}  // namespace

std::size_t bytes_of(Number number) {
  return with_type(number, [](auto value) { return sizeof value; });
}

bool is_float(Number number) { return number == Number::f32 || number == Number::f64; }

void PixelForm::take_missing(const std::vector<double>& values) {
  missing.clear();
  with_type(number, [&](auto type) {
    using T = decltype(type);
    for (const double value : values) {
      if constexpr (std::is_floating_point_v<T>)
        missing.push_back(static_cast<double>(static_cast<T>(value)));
      else if (value >= static_cast<double>(std::numeric_limits<T>::min()) &&
               value <= static_cast<double>(std::numeric_limits<T>::max()))
        missing.push_back(value);
    }
  });
}

std::optional<BadNumber> PixelForm::convert(const std::uint8_t* stored,
                                            std::uint8_t* pixels) const {
  thread_local std::vector<std::uint8_t> planes;
  const bool turns = channels_first && channels > 1;
  if (turns && planes.size() < count()) planes.resize(count());
  std::uint8_t* target = turns ? planes.data() : pixels;
  return with_type(number, [&](auto type) -> std::optional<BadNumber> {
    using T = decltype(type);
    const auto at = [&](std::size_t i, bool is_missing) {
      return BadNumber{static_cast<double>(load<T>(stored, i)),
                       channels_first ? i / (height * width) : i % channels, is_missing};
    };
    for (const double one : missing)
      for (std::size_t i = 0; i < count(); ++i)
        if (static_cast<double>(load<T>(stored, i)) == one) return at(i, true);
    if (!to_pixels<T>(stored, count(), *this, target)) {
      for (std::size_t i = 0; i < count(); ++i) {
        std::uint8_t one = 0;
        if (!to_pixels<T>(stored + i * sizeof(T), 1, *this, &one)) return at(i, false);
      }
    }
    if (turns) interleave(target, height * width, channels, pixels);
    return std::nullopt;
  });
}

void PixelForm::widen(const std::uint8_t* stored, std::vector<double>& values) const {
  values.resize(count());
  with_type(number, [&](auto type) {
    for (std::size_t i = 0; i < count(); ++i)
      values[i] = static_cast<double>(load<decltype(type)>(stored, i));
  });
}

std::string not_a_pixel(const PixelForm& form, std::size_t row, const BadNumber& number) {
  if (number.is_missing)
    return fmt::format(
        "row {} has {:.6g} in channel {}, which the attribute _FillValue or missing_value of the "
        "images says is no data: leave such rows out, or write a number there",
        row, number.value, number.channel);
  const std::string name = std::isnan(number.value)
                               ? "NaN (not a number)"
                               : fmt::format("the number {:.6g}", number.value);
  return fmt::format(
      "row {} holds {} in channel {}, which is not a pixel: {:g} to {:g} are "
      "expected{}",
      row, name, number.channel, form.low, form.high,
      is_float(form.number) ? " (data.range sets another range)" : "");
}

}  // namespace lockstep::data
