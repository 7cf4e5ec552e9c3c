#include "data/image/pixels/colour.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "data/image/pixels/colour_kernels.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

using Table = std::array<std::uint8_t, 256>;

const ColourKernels& colour_kernels() {
  static const ColourKernels& chosen = *colour_sets().front();
  return chosen;
}

float rest_of(double ratio) { return static_cast<float>(1 - ratio); }

void apply_tables(const Canvas& image, const std::array<Table, 3>& tables) {
  std::uint8_t* at = image.pixels;
  if (image.channels == 1) {
    for (std::size_t i = 0; i < image.count(); ++i, ++at) *at = tables[0][*at];
    return;
  }
  for (std::size_t i = 0; i < image.count(); ++i, at += 3) {
    at[0] = tables[0][at[0]];
    at[1] = tables[1][at[1]];
    at[2] = tables[2][at[2]];
  }
}

using Histogram = std::array<std::uint32_t, 256>;

std::array<Histogram, 3> histograms(const Canvas& image) {
  // Neighbours are often alike: in one table, each would wait for the sum of the one before.
  std::array<Histogram, 3> counts{}, others{};
  const std::uint8_t* at = image.pixels;
  for (std::size_t i = 0; i < image.count(); ++i, at += image.channels) {
    std::array<Histogram, 3>& table = i % 2 == 0 ? counts : others;
    for (std::size_t c = 0; c < image.channels; ++c) ++table[c][at[c]];
  }
  for (std::size_t c = 0; c < image.channels; ++c)
    for (std::size_t level = 0; level < 256; ++level) counts[c][level] += others[c][level];
  return counts;
}

Table stretched(const Histogram& counts) {
  std::size_t least = 0, most = 255;
  while (least < 255 && counts[least] == 0) ++least;
  while (most > 0 && counts[most] == 0) --most;
  Table table;
  const bool flat = most <= least;
  const float scale = flat ? 1.0f : 255.0f / static_cast<float>(most - least);
  for (std::size_t level = 0; level < 256; ++level) {
    const float above = static_cast<float>(level) - static_cast<float>(flat ? 0 : least);
    table[level] = static_cast<std::uint8_t>(std::clamp(above * scale, 0.0f, 255.0f));
  }
  return table;
}

Table equalised(const Histogram& counts, std::size_t pixels) {
  std::size_t most = 255;
  while (most > 0 && counts[most] == 0) --most;
  const std::size_t step = (pixels - counts[most]) / 255;
  Table table;
  std::size_t below = 0;
  for (std::size_t level = 0; level < 256; ++level) {
    const std::size_t place = step == 0 ? level : level == 0 ? 0 : (below + step / 2) / step;
    table[level] = static_cast<std::uint8_t>(std::min<std::size_t>(place, 255));
    below += counts[level];
  }
  return table;
}

template <std::size_t channels>
void warp_pixels(const Canvas& image, const Affine& from, const std::uint8_t* pixels) {
  // In 2^-32 of a pixel: the same on every processor, and wrong by 10^-7 at the end of a line.
  constexpr double one = 4294967296.0;
  const auto fixed = [](double v) { return static_cast<std::int64_t>(std::llround(v * one)); };
  const std::int64_t step_x = fixed(from.xx), step_y = fixed(from.yx);
  std::uint8_t* to = image.pixels;
  for (std::size_t line = 0; line < image.height; ++line) {
    const double y = static_cast<double>(line) + 0.5;
    std::int64_t at_x = fixed(from.xx * 0.5 + from.xy * y + from.x0);
    std::int64_t at_y = fixed(from.yx * 0.5 + from.yy * y + from.y0);
    for (std::size_t i = 0; i < image.width; ++i, at_x += step_x, at_y += step_y, to += channels) {
      const auto x = static_cast<std::uint64_t>(at_x >> 32);  // what lies outside is very large
      const auto row = static_cast<std::uint64_t>(at_y >> 32);
      if (x < image.width && row < image.height)
        std::memcpy(to, pixels + (row * image.width + x) * channels, channels);
      else
        std::memset(to, 0, channels);
    }
  }
}

}  // namespace

void adjust_brightness(const Canvas& image, double ratio) {
  colour_kernels().stretch(image.pixels, image.bytes(), static_cast<float>(ratio), 0);
}

void adjust_contrast(const Canvas& image, double ratio) {
  std::uint64_t sum = 0;
  if (image.channels == 3)
    sum = colour_kernels().grey_sum(image.pixels, image.count());
  else
    for (std::size_t i = 0; i < image.count(); ++i) sum += image.pixels[i];
  const double mean = static_cast<double>(sum) / static_cast<double>(image.count());
  colour_kernels().stretch(image.pixels, image.bytes(), static_cast<float>(ratio),
                           rest_of(ratio) * static_cast<float>(mean));
}

void adjust_saturation(const Canvas& image, double ratio) {
  if (image.channels == 3)
    colour_kernels().saturate(image.pixels, image.count(), static_cast<float>(ratio),
                              rest_of(ratio));
}

void adjust_hue(const Canvas& image, double by) {
  check(by >= -0.5 && by <= 0.5, "a hue is turned by half the circle at most");
  if (image.channels == 3)
    colour_kernels().turn(image.pixels, image.count(), static_cast<float>(by));
}

void adjust_sharpness(const Canvas& image, double ratio, std::vector<std::uint8_t>& scratch) {
  if (image.height <= 2 || image.width <= 2) return;
  const std::size_t line = image.width * image.channels, pixel = image.channels;
  const float share = static_cast<float>(ratio), rest = rest_of(ratio);
  scratch.assign(image.pixels, image.pixels + image.bytes());
  // At the edge the blurred image is the image itself; torchvision blends there, too.
  const auto blend = [&](std::size_t at, std::size_t count) {
    colour_kernels().blend(image.pixels + at, scratch.data() + at, count, share, rest, 0);
  };
  blend(0, line);
  for (std::size_t y = 1; y + 1 < image.height; ++y) {
    const std::uint8_t* at = scratch.data() + y * line + pixel;
    colour_kernels().sharpen(
        at - line, at, at + line, static_cast<std::ptrdiff_t>(line - 2 * pixel),
        static_cast<std::ptrdiff_t>(pixel), share, rest, image.pixels + y * line + pixel);
    blend(y * line, pixel);
    blend((y + 1) * line - pixel, pixel);
  }
  blend(image.bytes() - line, line);
}

void posterise(const Canvas& image, int bits) {
  const auto kept = static_cast<std::uint8_t>(0xFF00 >> bits);
  for (std::size_t i = 0; i < image.bytes(); ++i) image.pixels[i] &= kept;
}

void solarise(const Canvas& image, double threshold) {
  // The first level that is inverted; 256: none.
  const auto first = static_cast<int>(std::ceil(std::clamp(threshold, 0.0, 256.0)));
  for (std::size_t i = 0; i < image.bytes(); ++i) {
    const std::uint8_t level = image.pixels[i];
    image.pixels[i] = level >= first ? static_cast<std::uint8_t>(255 - level) : level;
  }
}

void stretch_contrast(const Canvas& image) {
  const auto counts = histograms(image);
  std::array<Table, 3> tables;
  for (std::size_t c = 0; c < 3; ++c) tables[c] = stretched(counts[c]);
  apply_tables(image, tables);
}

void equalise(const Canvas& image) {
  const auto counts = histograms(image);
  std::array<Table, 3> tables;
  for (std::size_t c = 0; c < image.channels; ++c) tables[c] = equalised(counts[c], image.count());
  apply_tables(image, tables);
}

void mix(std::uint8_t* values, const std::uint8_t* others, std::size_t count, float share) {
  colour_kernels().blend(values, others, count, share, 1 - share, 0.5f);
}

void warp(const Canvas& image, const Affine& from, std::vector<std::uint8_t>& scratch) {
  scratch.assign(image.pixels, image.pixels + image.bytes());
  if (image.channels == 3)
    warp_pixels<3>(image, from, scratch.data());
  else
    warp_pixels<1>(image, from, scratch.data());
}

Affine shear_x(double by) { return {.xy = by}; }
Affine shear_y(double by) { return {.yx = by}; }
Affine translation(int right, int down) {
  return {.x0 = -static_cast<double>(right), .y0 = -static_cast<double>(down)};
}

Affine rotation(double degrees, std::size_t height, std::size_t width) {
  const double angle = degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
  const double middle_x = static_cast<double>(width) / 2,
               middle_y = static_cast<double>(height) / 2;
  return {.xx = c,
          .xy = -s,
          .x0 = middle_x - c * middle_x + s * middle_y,
          .yx = s,
          .yy = c,
          .y0 = middle_y - s * middle_x - c * middle_y};
}

}  // namespace lockstep::data
