#include <csetjmp>
#include <cstring>

#include <fmt/core.h>
#include <png.h>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::data {
namespace {

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

/// Asks for 8 bits a value and 1 or 3 channels, whatever the file has. No gamma: values as stored.
void read_header(png_structp png, png_infop info) {
  // The largest image that allocate_image lets through cannot be wider than this.
  png_set_user_limits(png, 1u << 28, 1u << 28);
  png_read_info(png, info);
  png_set_expand(png);  // palettes to RGB, 1, 2 and 4 bits to 8, transparent colours to alpha
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

}  // namespace

Image decode_png(std::string_view bytes, const std::string& name) {
  Input input{bytes.data(), bytes.size(), {}, {}};
  Decoder decoder;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, leave, ignore_warning);
  check(decoder.png != nullptr, "libpng could not start");
  decoder.info = png_create_info_struct(decoder.png);
  check(decoder.info != nullptr, "libpng could not start");
  png_structp png = decoder.png;
  png_infop info = decoder.info;
  png_set_read_fn(png, &input, read_bytes);

  const auto refuse = [&] {
    throw InputError(fmt::format("{}: broken PNG: {}", name, input.text));
  };
  if (!guarded(input, [=] { read_header(png, info); })) refuse();
  const std::size_t height = png_get_image_height(png, info),
                    width = png_get_image_width(png, info);
  const std::size_t channels = png_get_channels(png, info);
  Image image = allocate_image(height, width, channels, name);
  check(png_get_rowbytes(png, info) == width * channels, "libpng gives 8 bits a value");

  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = image.pixels.data() + y * width * channels;
  png_bytepp row = rows.data();
  // Reading to the end finds files that were cut off after the pixels, and damage by CRC.
  const bool whole = guarded(input, [=] {
    png_read_image(png, row);
    png_read_end(png, nullptr);
  });
  if (!whole) refuse();
  return image;
}

}  // namespace lockstep::data
