#include "data/chunked/pixel_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

namespace lockstep::data {
namespace {

/// A float16, as its bits.
struct Half {
  std::uint16_t bits = 0;
  explicit operator float() const { return widen_f16(bits); }
  explicit operator double() const { return static_cast<double>(widen_f16(bits)); }
};

template <class T>
constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, Half>;

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
    case Number::f16:
      return use(Half{});
    case Number::f32:
      return use(float{});
    case Number::f64:
      return use(double{});
  }
  throw Error("a kind of number without a type");
}

template <class Use>
auto with_type(Element element, Use use) {
  switch (element) {
    case Element::u8:
      return use(std::uint8_t{});
    case Element::u16:
      return use(std::uint16_t{});
    case Element::i16:
      return use(std::int16_t{});
    case Element::f16:
      return use(Half{});
    case Element::f32:
      return use(float{});
  }
  throw Error("an element without a type");
}

// Rows in chunks may be unaligned.
template <class T>
T load(const std::uint8_t* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// Floats that become levels; false when one is not a level. Half a level above the highest is 256,
/// which becomes 255. NaN is in no range.
template <bool exactly, class T>
bool to_levels(const std::uint8_t* from, std::size_t count, const PixelForm& form,
               std::uint8_t* to) {
  using Wide = std::conditional_t<std::is_same_v<T, Half>, float, T>;
  const auto low = static_cast<Wide>(form.low),
             scale = static_cast<Wide>(255 / (form.high - form.low));
  unsigned bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Wide exact = (static_cast<Wide>(load<T>(from, i)) - low) * scale;
    const Wide level = exact + Wide(0.5);
    const bool good = level >= Wide(0) && level <= Wide(256);
    const int whole = static_cast<int>(good ? std::min(level, Wide(255.5)) : Wide(0));
    to[i] = static_cast<std::uint8_t>(whole);
    bad |= good ? 0u : 1u;
    if constexpr (exactly) {
      const auto nearest = static_cast<Wide>(whole);
      bad |= std::abs(exact - nearest) <= Wide(rounding_of_levels) * nearest ? 0u : 1u;
    }
  }
  return bad == 0;
}

/// Whole numbers that floats tell from their neighbours.
constexpr double most_exact = 1 << 24;

template <class T, class E>
bool fits(T value, E) {
  if constexpr (is_real<T> && std::is_same_v<E, float>) {
    // A float64 beyond all float32 is an error; what is infinite already is found later.
    const auto wide = static_cast<double>(value);
    return !(std::abs(wide) > static_cast<double>(std::numeric_limits<float>::max())) ||
           std::isinf(wide);
  } else if constexpr (is_real<T>) {
    const auto wide = static_cast<double>(value);
    return wide >= static_cast<double>(std::numeric_limits<E>::min()) &&
           wide <= static_cast<double>(std::numeric_limits<E>::max()) && wide == std::trunc(wide);
  } else if constexpr (std::is_same_v<E, float>) {
    return std::abs(static_cast<double>(value)) <= most_exact;
  } else {
    return std::in_range<E>(value);
  }
}

/// One number after the other; false when one does not fit.
template <class T, class E>
bool to_elements(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  if constexpr (std::is_same_v<T, E>) {
    std::memcpy(to, from, count * sizeof(E));
    return true;
  } else if constexpr (std::is_same_v<E, Half>) {
    throw Error("float16 is not made of other numbers");
  } else {
    unsigned bad = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T value = load<T>(from, i);
      const bool good = fits(value, E{});
      bad |= good ? 0u : 1u;
      E element{};
      if (good) {
        if constexpr (std::is_same_v<T, Half>)
          element = static_cast<E>(static_cast<float>(value));
        else
          element = static_cast<E>(value);
      }
      std::memcpy(to + i * sizeof(E), &element, sizeof(E));
    }
    return bad == 0;
  }
}

template <class T>
bool to_row(const std::uint8_t* from, std::size_t count, const PixelForm& form, std::uint8_t* to) {
  if constexpr (is_real<T>) {
    if (form.element == Element::u8)
      return form.only_levels ? to_levels<true, T>(from, count, form, to)
                              : to_levels<false, T>(from, count, form, to);
  }
  return with_type(form.element, [&](auto element) {
    return to_elements<T, decltype(element)>(from, count, to);
  });
}

/// Planes to pixels, of elements with as many bytes as `T`; some pixels at a time, so that what is
/// written of them stays in the cache.
template <class T>
void interleave(const std::uint8_t* planes, std::size_t pixels, std::size_t channels,
                std::uint8_t* to) {
  constexpr std::size_t together = 64;
  for (std::size_t first = 0; first < pixels; first += together) {
    const std::size_t count = std::min(together, pixels - first);
    for (std::size_t c = 0; c < channels; ++c) {
      const std::uint8_t* from = planes + (c * pixels + first) * sizeof(T);
      std::uint8_t* target = to + (first * channels + c) * sizeof(T);
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(target + i * channels * sizeof(T), from + i * sizeof(T), sizeof(T));
    }
  }
}

void interleave_bytes(const std::uint8_t* planes, std::size_t pixels, std::size_t channels,
                      std::uint8_t* to) {
  if (channels != 3) return interleave<std::uint8_t>(planes, pixels, channels, to);
  for (std::size_t i = 0; i < pixels; ++i) {
    to[3 * i] = planes[i];
    to[3 * i + 1] = planes[pixels + i];
    to[3 * i + 2] = planes[2 * pixels + i];
  }
}

void interleave(Element element, const std::uint8_t* planes, std::size_t pixels,
                std::size_t channels, std::uint8_t* to) {
  const std::size_t bytes = bytes_of(element);
  const auto chosen = bytes == 1   ? interleave_bytes
                      : bytes == 2 ? interleave<std::uint16_t>
                                   : interleave<std::uint32_t>;
  chosen(planes, pixels, channels, to);
}

}  // namespace

std::size_t bytes_of(Number number) {
  return with_type(number, [](auto value) { return sizeof value; });
}

bool is_float(Number number) {
  return number == Number::f16 || number == Number::f32 || number == Number::f64;
}

std::string name_of(Number number) {
  return with_type(number, [](auto value) {
    using T = decltype(value);
    return fmt::format("{}{}",
                       is_real<T>            ? "float"
                       : std::is_signed_v<T> ? "int"
                                             : "uint",
                       8 * sizeof(T));
  });
}

Element element_for(Number number) {
  switch (number) {
    case Number::u8:
      return Element::u8;
    case Number::u16:
      return Element::u16;
    case Number::i8:
    case Number::i16:
      return Element::i16;
    case Number::f16:
      return Element::f16;
    default:
      return Element::f32;
  }
}

Number number_of(Element element) {
  switch (element) {
    case Element::u8:
      return Number::u8;
    case Element::u16:
      return Number::u16;
    case Element::i16:
      return Number::i16;
    case Element::f16:
      return Number::f16;
    case Element::f32:
      return Number::f32;
  }
  throw Error("an element without numbers");
}

bool may_become(Number number, Element element) {
  return element != Element::f16 || number == Number::f16;
}

bool PixelForm::is_same() const {
  return number == number_of(element) && (!channels_first || channels == 1);
}

bool may_be(Number number, double value) {
  return with_type(number, [&](auto type) {
    using T = decltype(type);
    if constexpr (is_real<T>)
      return true;
    else
      return value >= static_cast<double>(std::numeric_limits<T>::min()) &&
             value <= static_cast<double>(std::numeric_limits<T>::max()) &&
             value == std::trunc(value);
  });
}

void PixelForm::take_missing(const std::vector<double>& values) {
  missing.clear();
  for (const double value : values) {
    if (!may_be(number, value)) continue;
    const double stored =
        number == Number::f32 ? static_cast<double>(static_cast<float>(value)) : value;
    if (!no_data || static_cast<float>(stored) != *no_data) missing.push_back(stored);
  }
}

std::optional<BadNumber> PixelForm::convert(const std::uint8_t* stored, std::uint8_t* row) const {
  thread_local std::vector<std::uint8_t> planes;
  const bool turns = channels_first && channels > 1;
  if (turns && planes.size() < row_bytes()) planes.resize(row_bytes());
  std::uint8_t* target = turns ? planes.data() : row;
  return with_type(number, [&](auto type) -> std::optional<BadNumber> {
    using T = decltype(type);
    const auto at = [&](std::size_t i, bool is_missing) {
      return BadNumber{static_cast<double>(load<T>(stored, i)),
                       channels_first ? i / (height * width) : i % channels, is_missing, 0};
    };
    for (const double one : missing)
      for (std::size_t i = 0; i < count(); ++i)
        if (static_cast<double>(load<T>(stored, i)) == one) return at(i, true);
    if (!to_row<T>(stored, count(), *this, target)) {
      for (std::size_t i = 0; i < count(); ++i) {
        std::uint8_t one[sizeof(float)];
        if (!to_row<T>(stored + i * sizeof(T), 1, *this, one)) return at(i, false);
      }
    }
    if (turns) interleave(element, target, height * width, channels, row);
    return std::nullopt;
  });
}

namespace {

/// Whether all exponents are below the highest, which infinities and NaN have.
template <class Bits, Bits exponent>
bool all_finite(const std::uint8_t* row, std::size_t count) {
  unsigned bad = 0;
  for (std::size_t i = 0; i < count; ++i)
    bad |= (load<Bits>(row, i) & exponent) == exponent ? 1u : 0u;
  return bad == 0;
}

}  // namespace

std::optional<BadNumber> PixelForm::find_bad(const std::uint8_t* row) const {
  if (!is_float(element)) return std::nullopt;
  const bool half = element == Element::f16;
  if (half ? all_finite<std::uint16_t, 0x7c00>(row, count())
           : all_finite<std::uint32_t, 0x7f800000>(row, count()))
    return std::nullopt;
  const auto value = [&](std::size_t i) {
    return half ? static_cast<double>(load<Half>(row, i))
                : static_cast<double>(load<float>(row, i));
  };
  const bool may_be_nan = no_data && std::isnan(*no_data);
  const auto good = [&](std::size_t i) {
    return std::isfinite(value(i)) || (may_be_nan && std::isnan(value(i)));
  };
  std::size_t first = 0, alike = 0;
  while (first < count() && good(first)) ++first;
  if (first == count()) return std::nullopt;
  for (std::size_t i = first; i < count(); i += channels)
    if (std::isnan(value(i)) == std::isnan(value(first)) && !std::isfinite(value(i))) ++alike;
  return BadNumber{value(first), first % channels, false,
                   static_cast<double>(alike) / static_cast<double>(height * width)};
}

void PixelForm::widen(const std::uint8_t* stored, std::vector<double>& values) const {
  values.resize(count());
  with_type(number, [&](auto type) {
    for (std::size_t i = 0; i < count(); ++i)
      values[i] = static_cast<double>(load<decltype(type)>(stored, i));
  });
}

namespace {

std::string what_is_expected(const PixelForm& form) {
  if (form.element != Element::u8)
    return form.element == Element::f32 && !is_float(form.number)
               ? "whole numbers of up to 2^24, which float32 holds exactly, are expected"
               : fmt::format(
                     "numbers that {} holds exactly are expected; data.element sets another "
                     "kind",
                     choice_name(form.element));
  if (form.only_levels)
    return fmt::format(
        "one of 256 levels of {:g} to {:g}, as in the looked-at rows, is expected: "
        "say --data.element {}",
        form.low, form.high, choice_name(element_for(form.number)));
  return fmt::format("{:g} to {:g} are expected{}", form.low, form.high,
                     is_float(form.number) ? " (data.range sets another range)"
                                           : " (data.element sets another kind of number)");
}

}  // namespace

std::string not_a_pixel(const PixelForm& form, std::size_t row, const BadNumber& number) {
  if (number.is_missing)
    return fmt::format(
        "row {} has {:.6g} in channel {}, which the attribute _FillValue or missing_value of the "
        "images says is no data: say --data.no-data {:.9g}, or none if it is data",
        row, number.value, number.channel, number.value);
  if (is_float(form.element) && !std::isfinite(number.value))
    return fmt::format(
        "row {} has {} in channel {}, as {:.3g} % of its pixels: leave such rows out "
        "(data.on-bad-row skip in a training), {}",
        row, std::isnan(number.value) ? "NaN (not a number)" : "an infinite number", number.channel,
        100 * number.share,
        std::isnan(number.value) ? "or say --data.no-data nan" : "or write a number there");
  const std::string name = std::isnan(number.value)
                               ? "NaN (not a number)"
                               : fmt::format("the number {:.6g}", number.value);
  return fmt::format("row {} holds {} in channel {}, which is not a pixel: {}", row, name,
                     number.channel, what_is_expected(form));
}

}  // namespace lockstep::data
