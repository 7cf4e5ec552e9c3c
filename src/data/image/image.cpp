#include "lockstep/data/image/image.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::data {

void require_decodable(std::size_t height, std::size_t width, const std::string& name) {
  constexpr std::size_t most = std::size_t{1} << 28;
  require(width > 0 && height > 0 && height <= most / width,
          fmt::format("{}: its header claims {} x {} pixels; at most {} can be packed", name,
                      height, width, most));
  require(std::max(height, width) <= longest_side,
          fmt::format("{}: is {} x {} pixels; a side has at most {}", name, height, width,
                      longest_side));
}

Image allocate_image(std::size_t height, std::size_t width, std::size_t channels,
                     const std::string& name) {
  require_decodable(height, width, name);
  return {.height = height,
          .width = width,
          .channels = channels,
          .pixels = std::vector<std::uint8_t>(height * width * channels)};
}

bool looks_like_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); }

bool looks_like_png(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1A\n"); }

namespace {

/// What a file that is not decoded is, by its first bytes.
std::string_view other_format(std::string_view bytes) {
  constexpr std::string_view tiff("II*\0", 4), other_tiff("MM\0*", 4);
  if (bytes.starts_with("GIF8")) return " (it is a GIF)";
  if (bytes.starts_with(tiff) || bytes.starts_with(other_tiff)) return " (it is a TIFF)";
  const bool heif = bytes.size() > 8 && bytes.substr(4).starts_with("ftyp");
  return heif ? " (it is an HEIF or AVIF)" : "";
}

std::string not_an_image(std::string_view bytes) {
  if (bytes.empty()) return "the file is empty";
  return fmt::format("neither JPEG, PNG, WebP nor BMP by its first bytes{}", other_format(bytes));
}

}  // namespace

Image decode_image(std::string_view bytes, const std::string& name) {
  if (looks_like_jpeg(bytes)) return decode_jpeg(bytes, name);
  if (looks_like_png(bytes)) return decode_png(bytes, name);
  if (looks_like_webp(bytes)) return decode_webp(bytes, name);
  if (bytes.starts_with("BM")) return decode_bmp(bytes, name);
  throw InputError(fmt::format("{}: not an image: {}", name, not_an_image(bytes)));
}

Image with_channels(Image image, std::size_t channels) {
  if (image.channels == channels) return image;
  check((image.channels == 1 || image.channels == 3) && (channels == 1 || channels == 3),
        "images have 1 or 3 channels");
  const std::size_t count = image.height * image.width;
  Image out{.height = image.height,
            .width = image.width,
            .channels = channels,
            .pixels = std::vector<std::uint8_t>(count * channels)};
  const std::uint8_t* from = image.pixels.data();
  for (std::size_t i = 0; i < count; ++i) {
    if (channels == 3) {
      std::fill_n(&out.pixels[3 * i], 3, from[i]);
    } else {
      // ITU-R 601-2 luma in 16-bit fixed point; the weights add up to 1.
      const std::uint8_t* c = from + 3 * i;
      out.pixels[i] =
          static_cast<std::uint8_t>((c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 0x8000u) >> 16);
    }
  }
  return out;
}

namespace {

constexpr int fraction_bits = 22;  // 8 bits of value + 22 of weight fit into 31

/// The source pixels of one target pixel, and their weights in fixed point.
struct Taps {
  std::size_t first = 0;
  std::vector<std::int32_t> weights;
};

/// The triangle filter of half-width max(1, from / to) around each target pixel's centre.
std::vector<Taps> triangle_taps(std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0), length = static_cast<double>(from);
  std::vector<Taps> taps(to);
  for (std::size_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = static_cast<std::size_t>(std::max(centre - reach + 0.5, 0.0));
    const auto last = static_cast<std::size_t>(std::min(centre + reach + 0.5, length));
    std::vector<double> weights(last - first);
    double sum = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double at = (static_cast<double>(first + k) - centre + 0.5) * (1.0 / reach);
      weights[k] = std::max(1 - std::abs(at), 0.0);
      sum += weights[k];
    }
    taps[i].first = first;
    for (const double w : weights)
      taps[i].weights.push_back(
          static_cast<std::int32_t>(std::lround(w / sum * (1 << fraction_bits))));
  }
  return taps;
}

/// Resamples one axis: `lines` lines of `taps.size()` pixels of `channels` values. `step` and
/// `line` are the distances, in values, between neighbours on the axis and between lines.
struct Layout {
  std::size_t step = 0, line = 0;
};

void resample(const std::vector<Taps>& taps, std::size_t lines, std::size_t channels,
              const std::uint8_t* from, Layout source, std::uint8_t* to, Layout target) {
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const std::uint8_t* base = from + line * source.line + taps[i].first * source.step;
      for (std::size_t c = 0; c < channels; ++c) {
        std::int32_t sum = 1 << (fraction_bits - 1);
        for (std::size_t k = 0; k < taps[i].weights.size(); ++k)
          sum += base[k * source.step + c] * taps[i].weights[k];
        to[line * target.line + i * target.step + c] =
            static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
      }
    }
  }
}

}  // namespace

void resized(std::size_t short_side, std::size_t& height, std::size_t& width) {
  if (height <= width) {
    width = short_side * width / height;
    height = short_side;
  } else {
    height = short_side * height / width;
    width = short_side;
  }
}

namespace {

/// Whether stretching the lines first would take very much more memory than the image and the
/// result: a narrow image is high, and becomes wide.
bool columns_first(const Image& image, std::size_t height, std::size_t width) {
  constexpr std::size_t usual = std::size_t{1} << 27;
  const std::size_t between = image.height * width * image.channels;
  return between > std::max(usual, image.pixels.size() + height * width * image.channels);
}

}  // namespace

Image resize(const Image& image, std::size_t height, std::size_t width) {
  if (columns_first(image, height, width))
    return resize(resize(image, height, image.width), height, width);
  const std::size_t c = image.channels;
  Image wide{image.height, width, c, {}};
  if (width != image.width) {
    wide.pixels.resize(image.height * width * c);
    resample(triangle_taps(image.width, width), image.height, c, image.pixels.data(),
             {c, image.width * c}, wide.pixels.data(), {c, width * c});
  }
  const Image& lines = width == image.width ? image : wide;
  if (height == image.height) return lines;
  Image out{.height = height,
            .width = width,
            .channels = c,
            .pixels = std::vector<std::uint8_t>(height * width * c)};
  resample(triangle_taps(image.height, height), width, c, lines.pixels.data(), {width * c, c},
           out.pixels.data(), {width * c, c});
  return out;
}

}  // namespace lockstep::data
