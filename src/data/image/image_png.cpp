#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <csetjmp>
#include <cstring>

#include <fmt/format.h>
#include <png.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {
namespace {

/// What the low bytes of 16-bit values are worth, which are dropped. Sums of exact integers: an
/// image has at most 2^28 pixels.
class LowBytes {
 public:
  void add(std::size_t channel, unsigned value) {
    count_[channel] += 1;
    whole_[channel].add(value);
    low_[channel].add(value & 255);
    smallest_ = std::min(smallest_, value);
    largest_ = std::max(largest_, value);
  }
  bool any() const { return count_[0] > 0; }
  /// Throws InputError when little would be left.
  void judge(const std::string& name) const;

 private:
  struct Sums {
    std::uint64_t sum = 0, squares = 0;
    void add(std::uint64_t value) {
      sum += value;
      squares += value * value;
    }
    double variance(std::uint64_t count) const {
      const double n = static_cast<double>(count), mean = static_cast<double>(sum) / n;
      return std::max(static_cast<double>(squares) / n - mean * mean, 0.0);
    }
  };
  static constexpr std::size_t most_channels = 3;
  std::array<std::uint64_t, most_channels> count_{};
  std::array<Sums, most_channels> whole_{}, low_{};
  unsigned smallest_ = 65535, largest_ = 0;
};

void LowBytes::judge(const std::string& name) const {
  // Below a quarter of the range, the scale is not that of 16 bits: cameras and microscopes
  // have 12.
  constexpr unsigned quarter = 1u << 14;
  constexpr double most_lost = 0.03, much_lost = 0.01;  // of the deviation, as for floats
  double kept = 0, lost = 0;
  for (std::size_t c = 0; c < most_channels && count_[c] > 0; ++c) {
    kept += whole_[c].variance(count_[c]);
    lost += low_[c].variance(count_[c]);
  }
  static std::atomic_flag said, warned;
  if (!said.test_and_set())
    log::warn(fmt::format("{}: 16-bit PNGs: the low 8 bits are dropped", name));
  if (smallest_ == largest_) return;
  const bool nothing_left = lost >= kept;
  const auto loses = [&](double share) {
    return nothing_left || (largest_ < quarter && lost > share * share * kept);
  };
  const std::string levels = fmt::format(
      "16-bit PNG with values of {} to {}: the high 8 bits, which are kept, have {} levels",
      smallest_, largest_, (largest_ >> 8) - (smallest_ >> 8) + 1);
  require(!loses(most_lost),
          fmt::format("{}: is a {}; stretch the values to 0 to 65535, or save it with 8 bits", name,
                      levels));
  if (loses(much_lost) && !warned.test_and_set())
    log::warn(fmt::format("{}: is a {}; more are kept when the values are stretched to 0 to 65535",
                          name, levels));
}

/// What libpng reads from, and where it leaves its last error text. libpng is C: a fatal error
/// leaves by longjmp, so nothing between setjmp and longjmp may own memory.
struct Input {
  const char* next = nullptr;
  std::size_t left = 0;
  std::jmp_buf back;
  char text[256] = "";
};

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (count > input->left) png_error(png, "premature end of file");
  std::memcpy(to, input->next, count);
  input->next += count;
  input->left -= count;
}

void leave(png_structp png, png_const_charp text) {
  auto* input = static_cast<Input*>(png_get_error_ptr(png));
  std::strncpy(input->text, text, sizeof input->text - 1);
  std::longjmp(input->back, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

/// Runs `step`; false when libpng gave up, with its error text in input.text. Nothing that `step`
/// does may own memory or throw.
template <class Step>
bool guarded(Input& input, Step step) {
  if (setjmp(input.back) != 0) return false;
  step();
  return true;
}

/// libpng calls this for each line of a 16-bit PNG. Keeps the high bytes.
void keep_high_bytes(png_structp png, png_row_infop row, png_bytep line) {
  auto& low_bytes = *static_cast<LowBytes*>(png_get_user_transform_ptr(png));
  const std::size_t values = std::size_t{row->width} * row->channels;
  for (std::size_t i = 0; i < values; ++i) {
    low_bytes.add(i % row->channels, line[2 * i] * 256u + line[2 * i + 1]);
    line[i] = line[2 * i];
  }
}

/// libpng calls this for each line of indexes, one a byte. libpng itself would make indexes beyond
/// the palette black: its check of them does not see lines that it has expanded to colours.
void expand_palette(png_structp png, png_row_infop row, png_bytep line) {
  png_colorp palette = nullptr;
  int colours = 0;
  png_get_PLTE(png, static_cast<png_infop>(png_get_user_transform_ptr(png)), &palette, &colours);
  for (std::size_t x = row->width; x-- > 0;) {
    if (line[x] >= colours) png_error(png, "a pixel's colour is not in its palette");
    const png_color colour = palette[line[x]];
    line[3 * x] = colour.red;
    line[3 * x + 1] = colour.green;
    line[3 * x + 2] = colour.blue;
  }
}

/// Asks for 1 or 3 channels and 8 bits a value, whatever the file has; `low_bytes` null: for the
/// 16 bits that it has. No gamma: values as stored. libpng makes room for lines then.
void prepare_lines(png_structp png, png_infop info, LowBytes* low_bytes) {
  if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(png);  // one index a byte
    png_set_read_user_transform_fn(png, expand_palette);
    png_set_user_transform_info(png, info, 8, 3);
  } else {
    png_set_expand(png);  // 1, 2 and 4 bits to 8, transparent colours to alpha
  }
  png_set_strip_alpha(png);
  if (low_bytes == nullptr) {
    if constexpr (std::endian::native == std::endian::little) png_set_swap(png);
  } else if (png_get_bit_depth(png, info) == 16) {
    const bool grey = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
    png_set_read_user_transform_fn(png, keep_high_bytes);
    png_set_user_transform_info(png, low_bytes, 8, grey ? 1 : 3);
  }
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

/// Throws InputError where a chunk is longer than the rest of the file: libpng would make room for
/// what it claims first. Or where the last chunk is damaged, which not every libpng tells.
void require_whole_chunks(std::string_view bytes, const std::string& name) {
  constexpr std::size_t signature = 8, around = 12;  // length, name, checksum
  for (std::size_t at = signature; at < bytes.size();) {
    std::size_t length = 0;
    for (const char byte : bytes.substr(at, 4))
      length = length << 8 | static_cast<unsigned char>(byte);
    require(bytes.size() - at >= around && length <= bytes.size() - at - around,
            fmt::format("{}: broken PNG: premature end of file", name));
    if (bytes.substr(at + 4, 4) == "IEND") {
      const bool whole = length == 0 && bytes.substr(at + 8, 4) == "\xAE\x42\x60\x82";
      require(whole, fmt::format("{}: broken PNG: IEND: CRC error", name));
      return;
    }
    at += around + length;
  }
}

}  // namespace

std::size_t channels_of_16_bits(std::string_view bytes) {
  constexpr std::size_t bits_at = 24, colours_at = 25;  // in the header, which comes first
  if (!looks_like_png(bytes) || bytes.size() <= colours_at || bytes[bits_at] != 16) return 0;
  return (bytes[colours_at] & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
}

Image decode_png(std::string_view bytes, const std::string& name, Element element) {
  require_whole_chunks(bytes, name);
  require(element == Element::u8 || channels_of_16_bits(bytes) > 0,
          fmt::format("{}: has 8 bits a value or fewer, and images of uint16 are wanted", name));
  Input input{bytes.data(), bytes.size(), {}, {}};
  Decoder decoder;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, leave, ignore_warning);
  check(decoder.png != nullptr, "libpng could not start");
  decoder.info = png_create_info_struct(decoder.png);
  check(decoder.info != nullptr, "libpng could not start");
  png_structp png = decoder.png;
  png_infop info = decoder.info;
  png_set_read_fn(png, &input, read_bytes);
  constexpr std::size_t most_unpacked = 8'000'000;  // of a profile or a text
  png_set_chunk_malloc_max(png, most_unpacked + bytes.size());
  constexpr unsigned any = 0x7fff'ffff;
  png_set_user_limits(png, any, any);  // require_decodable has ours

  const auto refuse = [&] {
    throw InputError(fmt::format("{}: broken PNG: {}", name, input.text));
  };
  LowBytes low_bytes;
  LowBytes* const low = element == Element::u8 ? &low_bytes : nullptr;
  if (!guarded(input, [=] { png_read_info(png, info); })) refuse();
  const std::size_t height = png_get_image_height(png, info),
                    width = png_get_image_width(png, info);
  require_decodable(height, width, name);
  if (!guarded(input, [=] { prepare_lines(png, info, low); })) refuse();
  const std::size_t channels = png_get_channels(png, info);
  Image image = allocate_image(height, width, channels, name, element);
  const std::size_t line = width * channels * bytes_of(element);
  check(png_get_rowbytes(png, info) == line, "libpng gives values of the size asked for");

  const int passes = png_set_interlace_handling(png);
  png_bytep const pixels = image.pixels.data();
  // Reading to the end finds files that were cut off after the pixels, and damage by CRC.
  const bool whole = guarded(input, [=] {
    for (int pass = 0; pass < passes; ++pass)
      for (std::size_t y = 0; y < height; ++y) png_read_row(png, pixels + y * line, nullptr);
    png_read_end(png, nullptr);
  });
  if (!whole) refuse();
  if (low_bytes.any()) low_bytes.judge(name);
  return image;
}

}  // namespace lockstep::data
