#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {
namespace {

// Microsoft, "Bitmap Storage": the file's header, one of several headers of the image, which are
// told apart by their length, masks or a palette, and lines that are padded to 4 bytes.
constexpr std::size_t file_header = 14, core_header = 12, info_header = 40;
constexpr std::uint32_t plain = 0, bit_fields = 3, bit_fields_with_alpha = 6;
constexpr std::size_t channels = 3;

/// Where the bits of one colour are in a pixel.
struct ColourBits {
  std::uint32_t mask = 0;
  std::uint8_t level(std::uint32_t pixel) const {
    const std::uint64_t most = mask >> std::countr_zero(mask);
    const std::uint64_t value = (pixel & mask) >> std::countr_zero(mask);
    return static_cast<std::uint8_t>(value * 255 / most);
  }
};

class Bitmap {
 public:
  Bitmap(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {
    read_header();
    if (bits_ <= 8) read_palette();
    if (bits_ == 16 || bits_ == 32) read_masks();
  }

  Image decode() const {
    const std::size_t line = (width_ * bits_ + 31) / 32 * 4;
    if (pixels_ > bytes_.size() || (bytes_.size() - pixels_) / line < height_)
      refuse("it is cut off");
    Image image = allocate_image(height_, width_, channels, name_);
    for (std::size_t y = 0; y < height_; ++y) {
      const std::size_t stored = from_top_ ? y : height_ - 1 - y;
      const auto from = bytes_.substr(pixels_ + stored * line, line);
      decode_line(from, &image.pixels[y * width_ * channels]);
    }
    return image;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(fmt::format("{}: broken BMP: {}", name_, what));
  }

  std::uint32_t number(std::size_t at, std::size_t bytes) const {
    if (at > bytes_.size() || bytes_.size() - at < bytes) refuse("it is cut off");
    return little_endian(bytes_.substr(at, bytes));
  }

  static std::uint32_t little_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
    return value;
  }

  void read_header() {
    pixels_ = number(10, 4);
    header_ = number(file_header, 4);
    const bool core = header_ == core_header;
    if (!core && (header_ < info_header || header_ > 256)) refuse("its header is of no known kind");
    if (core) {  // its sizes have no sign
      width_ = number(18, 2);
      height_ = number(20, 2);
      bits_ = number(24, 2);
    } else {
      const auto width = static_cast<std::int32_t>(number(18, 4));
      const auto height = static_cast<std::int64_t>(static_cast<std::int32_t>(number(22, 4)));
      width_ = static_cast<std::size_t>(std::max(width, 0));
      height_ = static_cast<std::size_t>(height < 0 ? -height : height);
      from_top_ = height < 0;
      bits_ = number(28, 2);
      compression_ = number(30, 4);
    }
    if (width_ == 0 || height_ == 0) refuse("its header claims no pixels");
    if (pixels_ < file_header + header_) refuse("its pixels begin inside its header");
    const bool depth =
        bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32;
    if (!depth || number(core ? 22 : 26, 2) != 1) refuse("its header claims another depth");
    const bool masks = compression_ == bit_fields || compression_ == bit_fields_with_alpha;
    require(
        compression_ == plain || (masks && (bits_ == 16 || bits_ == 32)),
        fmt::format("{}: is a compressed BMP, which is not read: save it in another form", name_));
  }

  void read_palette() {
    const bool core = header_ == core_header;
    const std::size_t most = std::size_t{1} << bits_, entry = core ? 3 : 4;
    std::size_t colours = core ? most : number(46, 4);
    if (colours == 0) colours = most;
    if (colours > most) refuse("its palette is too long");
    for (std::size_t c = 0; c < colours; ++c) {
      const std::uint32_t bgr = number(file_header + header_ + c * entry, 3);
      palette_.push_back({static_cast<std::uint8_t>(bgr >> 16), static_cast<std::uint8_t>(bgr >> 8),
                          static_cast<std::uint8_t>(bgr)});
    }
  }

  void read_masks() {
    if (compression_ == plain) {
      masks_ = bits_ == 16 ? std::array<ColourBits, channels>{{{0x7C00}, {0x3E0}, {0x1F}}}
                           : std::array<ColourBits, channels>{{{0xFF0000}, {0xFF00}, {0xFF}}};
      return;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      const std::uint32_t mask = number(file_header + info_header + 4 * c, 4);
      const std::uint64_t run = mask == 0 ? 0 : (std::uint64_t{mask} >> std::countr_zero(mask)) + 1;
      if (!std::has_single_bit(run)) refuse("the mask of a colour is not one run of bits");
      masks_[c].mask = mask;
    }
  }

  void decode_line(std::string_view from, std::uint8_t* to) const {
    for (std::size_t x = 0; x < width_; ++x, to += channels) {
      if (bits_ <= 8) {
        const std::size_t per_byte = 8 / bits_, shift = 8 - bits_ * (x % per_byte + 1);
        const std::size_t index = static_cast<std::uint8_t>(from[x / per_byte]) >> shift &
                                  ((std::size_t{1} << bits_) - 1);
        if (index >= palette_.size()) refuse("a pixel's colour is not in its palette");
        std::copy(palette_[index].begin(), palette_[index].end(), to);
      } else if (bits_ == 24) {
        for (std::size_t c = 0; c < channels; ++c)
          to[c] = static_cast<std::uint8_t>(from[3 * x + 2 - c]);
      } else {
        const std::uint32_t pixel = little_endian(from.substr(x * bits_ / 8, bits_ / 8));
        for (std::size_t c = 0; c < channels; ++c) to[c] = masks_[c].level(pixel);
      }
    }
  }

  std::string_view bytes_;
  const std::string& name_;
  std::size_t pixels_ = 0, header_ = 0, width_ = 0, height_ = 0, bits_ = 0;
  std::uint32_t compression_ = plain;
  bool from_top_ = false;
  std::vector<std::array<std::uint8_t, channels>> palette_;
  std::array<ColourBits, channels> masks_{};
};

}  // namespace

Image decode_bmp(std::string_view bytes, const std::string& name) {
  return Bitmap(bytes, name).decode();
}

}  // namespace lockstep::data
