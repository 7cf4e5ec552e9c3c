#include "lockstep/data/image/image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.hpp"

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
                     const std::string& name, Element element) {
  require_decodable(height, width, name);
  return {.height = height,
          .width = width,
          .channels = channels,
          .pixels = std::vector<std::uint8_t>(height * width * channels * bytes_of(element)),
          .element = element};
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

Image decode_image(std::string_view bytes, const std::string& name, Element element) {
  if (looks_like_png(bytes)) return decode_png(bytes, name, element);
  require(element == Element::u8,
          fmt::format("{}: is no PNG of 16 bits, and images of uint16 are wanted", name));
  if (looks_like_jpeg(bytes)) return decode_jpeg(bytes, name);
  if (looks_like_webp(bytes)) return decode_webp(bytes, name);
  if (bytes.starts_with("BM")) return decode_bmp(bytes, name);
  throw InputError(fmt::format("{}: not an image: {}", name, not_an_image(bytes)));
}

namespace {

/// From `image`, which has the other number of channels.
template <class T>
void change_channels(const Image& image, Image& out) {
  const std::uint8_t* from = image.pixels.data();
  std::uint8_t* to = out.pixels.data();
  for (std::size_t i = 0; i < image.height * image.width; ++i) {
    T c[3], grey;
    if (out.channels == 3) {
      std::memcpy(c, from + i * sizeof(T), sizeof(T));
      c[1] = c[2] = c[0];
      std::memcpy(to + i * sizeof c, c, sizeof c);
    } else {
      // ITU-R 601-2 luma in 16-bit fixed point; the weights add up to 1.
      std::memcpy(c, from + i * sizeof c, sizeof c);
      grey = static_cast<T>((c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 0x8000u) >> 16);
      std::memcpy(to + i * sizeof grey, &grey, sizeof grey);
    }
  }
}

}  // namespace

Image with_channels(Image image, std::size_t channels) {
  if (image.channels == channels) return image;
  check((image.channels == 1 || image.channels == 3) && (channels == 1 || channels == 3),
        "images have 1 or 3 channels");
  check(image.element == Element::u8 || image.element == Element::u16, "images of whole numbers");
  Image out = allocate_image(image.height, image.width, channels, "an image", image.element);
  (image.element == Element::u8 ? change_channels<std::uint8_t>
                                : change_channels<std::uint16_t>)(image, out);
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

namespace {

/// Numbers of a file that may be cut off anywhere: what is not there is 0.
struct Numbers {
  std::string_view bytes;
  bool big_endian = true;

  std::uint32_t at(std::size_t place, std::size_t count) const {
    if (place > bytes.size() || bytes.size() - place < count) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<std::uint8_t>(bytes[place + i]);
      value |= std::uint32_t{byte} << 8 * (big_endian ? count - 1 - i : i);
    }
    return value;
  }
};

std::string_view from(std::string_view bytes, std::size_t place, std::size_t count) {
  return place > bytes.size() ? std::string_view() : bytes.substr(place, count);
}

/// The segment of a JPEG that begins with "Exif": ITU-T T.81, annex B, and Exif 2.3, 4.7.
std::string_view exif_of_jpeg(std::string_view file) {
  constexpr std::uint32_t exif_segment = 0xFFE1, start_of_scan = 0xFFDA;
  constexpr std::string_view name("Exif\0\0", 6);
  const Numbers numbers{file};
  for (std::size_t at = 2;;) {
    const std::uint32_t marker = numbers.at(at, 2), length = numbers.at(at + 2, 2);
    if (marker < 0xFF00 || marker == start_of_scan || length < 2) return {};
    const std::string_view content = from(file, at + 4, length - 2);
    if (marker == exif_segment && content.starts_with(name)) return content.substr(name.size());
    at += 2 + length;
  }
}

/// The chunk eXIf of a PNG (length, name, content, checksum).
std::string_view exif_of_png(std::string_view file) {
  const Numbers numbers{file};
  for (std::size_t at = 8; from(file, at + 4, 4).size() == 4;) {
    const std::size_t length = numbers.at(at, 4);
    if (from(file, at + 4, 4) == "eXIf") return from(file, at + 8, length);
    at += 12 + length;
  }
  return {};
}

/// The chunk EXIF of a WebP (name, length, content, padded to 2 bytes).
std::string_view exif_of_webp(std::string_view file) {
  const Numbers numbers{file, false};
  for (std::size_t at = 12; from(file, at, 4).size() == 4;) {
    const std::size_t length = numbers.at(at + 4, 4);
    if (from(file, at, 4) == "EXIF") {
      std::string_view content = from(file, at + 8, length);
      if (content.starts_with("Exif"))
        content.remove_prefix(std::min<std::size_t>(6, content.size()));
      return content;
    }
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace

int exif_orientation(std::string_view file) {
  constexpr std::uint32_t orientation_tag = 0x112, most = 8;
  const std::string_view exif = looks_like_jpeg(file)   ? exif_of_jpeg(file)
                                : looks_like_webp(file) ? exif_of_webp(file)
                                : looks_like_png(file)  ? exif_of_png(file)
                                                        : std::string_view();
  if (!exif.starts_with("MM") && !exif.starts_with("II")) return 1;
  // TIFF 6.0: a directory of entries of 12 bytes (tag, type, count, value).
  const Numbers numbers{exif, exif.starts_with("MM")};
  const std::size_t directory = numbers.at(4, 4), entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (numbers.at(entry, 2) != orientation_tag) continue;
    const std::uint32_t value = numbers.at(entry + 8, 2);
    return value >= 1 && value <= most ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(const Image& image, int orientation) {
  if (orientation == 1) return image;
  // 2 to 4 mirror and turn by half; 5 to 8 also exchange lines and columns.
  const bool exchanged = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{.height = exchanged ? image.width : image.height,
            .width = exchanged ? image.height : image.width,
            .channels = image.channels,
            .pixels = std::vector<std::uint8_t>(image.pixels.size()),
            .element = image.element};
  std::uint8_t* to = out.pixels.data();
  const std::size_t pixel_bytes = image.channels * bytes_of(image.element);
  for (std::size_t y = 0; y < out.height; ++y)
    for (std::size_t x = 0; x < out.width; ++x, to += pixel_bytes) {
      const std::size_t row = exchanged ? x : y, column = exchanged ? y : x;
      const std::size_t line = from_below ? image.height - 1 - row : row;
      const std::size_t place = from_right ? image.width - 1 - column : column;
      std::copy_n(&image.pixels[(line * image.width + place) * pixel_bytes], pixel_bytes, to);
    }
  return out;
}

}  // namespace lockstep::data
