#include "tests/unit/data/image_fixture.hpp"

#include <png.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
// jpeglib.h needs size_t and FILE before it.
#include <jpeglib.h>

namespace lockstep::test {

data::Image picture(std::size_t height, std::size_t width, std::size_t channels) {
  data::Image image{height, width, channels, {}};
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x)
      for (std::size_t c = 0; c < channels; ++c) {
        const double phase = static_cast<double>(x) / (3.0 + static_cast<double>(c)) +
                             static_cast<double>(y) / (7.0 - static_cast<double>(c));
        image.pixels.push_back(static_cast<std::uint8_t>(127.5 + 127 * std::sin(phase)));
      }
  return image;
}

std::string jpeg_of(const data::Image& image, bool progressive, Chroma chroma) {
  jpeg_compress_struct codec;
  jpeg_error_mgr errors;
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &bytes, &size);
  codec.image_height = static_cast<JDIMENSION>(image.height);
  codec.image_width = static_cast<JDIMENSION>(image.width);
  codec.input_components = static_cast<int>(image.channels);
  codec.in_color_space =
      image.channels == 1 ? JCS_GRAYSCALE : (image.channels == 3 ? JCS_RGB : JCS_CMYK);
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 95, TRUE);
  if (image.channels == 3) {
    codec.comp_info[0].h_samp_factor = chroma.across;
    codec.comp_info[0].v_samp_factor = chroma.down;
  }
  if (progressive) jpeg_simple_progression(&codec);
  jpeg_start_compress(&codec, TRUE);
  for (std::size_t y = 0; y < image.height; ++y) {
    std::vector<std::uint8_t> line(
        image.pixels.begin() + static_cast<std::ptrdiff_t>(y * image.width * image.channels),
        image.pixels.begin() + static_cast<std::ptrdiff_t>((y + 1) * image.width * image.channels));
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  std::string result(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&codec);
  std::free(bytes);
  return result;
}

data::Image decoded_by_libjpeg(const std::string& jpeg) {
  jpeg_decompress_struct codec;
  jpeg_error_mgr errors;
  codec.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&codec, TRUE);
  jpeg_start_decompress(&codec);
  const auto channels = static_cast<std::size_t>(codec.output_components);
  data::Image image{codec.output_height, codec.output_width, channels, {}};
  image.pixels.resize(image.height * image.width * channels);
  while (codec.output_scanline < codec.output_height) {
    JSAMPROW row = &image.pixels[codec.output_scanline * image.width * channels];
    jpeg_read_scanlines(&codec, &row, 1);
  }
  jpeg_finish_decompress(&codec);
  jpeg_destroy_decompress(&codec);
  return image;
}

namespace {

void write_to(png_structp png, std::string& file) {
  png_set_write_fn(
      png, &file,
      [](png_structp writer, png_bytep bytes, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(writer))
            ->append(reinterpret_cast<const char*>(bytes), size);
      },
      nullptr);
}

/// `lines`: the values one after the other, those of 16 bits with the high byte first.
std::string png_of_lines(std::size_t height, std::size_t width, std::size_t channels, int bits,
                         const std::vector<png_byte>& lines) {
  constexpr int types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                           PNG_COLOR_TYPE_RGB_ALPHA};
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string result;
  write_to(png, result);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), bits,
               types[channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (std::size_t y = 0; y < height; ++y) png_write_row(png, &lines[y * lines.size() / height]);
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return result;
}

}  // namespace

std::string png_of(const data::Image& image, int bits) {
  std::vector<png_byte> lines;
  for (const std::uint8_t value : image.pixels) {
    lines.push_back(value);
    if (bits == 16) lines.push_back(static_cast<png_byte>(255 - value));
  }
  return png_of_lines(image.height, image.width, image.channels, bits, lines);
}

std::string png_of_16(std::size_t height, std::size_t width,
                      const std::vector<std::uint16_t>& values) {
  std::vector<png_byte> lines;
  for (const std::uint16_t value : values) {
    lines.push_back(static_cast<png_byte>(value >> 8));
    lines.push_back(static_cast<png_byte>(value));
  }
  return png_of_lines(height, width, 1, 16, lines);
}

std::string png_of_palette(std::size_t height, std::size_t width, int bits, bool interlaced,
                           const std::vector<std::uint8_t>& colours,
                           const std::vector<std::uint8_t>& indexes) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string result;
  write_to(png, result);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), bits,
               PNG_COLOR_TYPE_PALETTE, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (std::size_t c = 0; c < colours.size(); c += 3)
    palette.push_back({colours[c], colours[c + 1], colours[c + 2]});
  png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  const png_byte transparent = 0;
  png_set_tRNS(png, info, &transparent, 1, nullptr);
  png_set_check_for_invalid_index(png, 0);
  png_write_info(png, info);
  png_set_packing(png);
  for (int pass = png_set_interlace_handling(png); pass > 0; --pass)
    for (std::size_t y = 0; y < height; ++y) png_write_row(png, &indexes[y * width]);
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return result;
}

}  // namespace lockstep::test
