#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::data {
namespace {

/// Where libjpeg writes to: memory that it allocates and enlarges, and that we free.
struct Written {
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  ~Written() { std::free(bytes); }
};

void write_lines(jpeg_compress_struct& codec, const std::uint8_t* pixels, std::size_t line_bytes) {
  while (codec.next_scanline < codec.image_height) {
    // libjpeg's rows are not const, but it does not write to them.
    auto* row = const_cast<JSAMPROW>(pixels + codec.next_scanline * line_bytes);
    jpeg_write_scanlines(&codec, &row, 1);
  }
}

}  // namespace

std::string encode_jpeg(const Image& image, int quality, const std::string& name) {
  check(image.channels == 1 || image.channels == 3, "images have 1 or 3 channels");
  require(std::max(image.height, image.width) <= JPEG_MAX_DIMENSION,
          fmt::format("{}: {} x {} pixels are more than a JPEG can have", name, image.height,
                      image.width));
  jpeg::Encoder encoder{};
  jpeg::install(encoder.exit);
  encoder.codec.err = &encoder.exit.manager;
  Written written;
  Written* to = &written;
  const Image* from = &image;
  const bool done = jpeg::guarded(encoder, [=](jpeg_compress_struct& codec) {
    jpeg_create_compress(&codec);
    jpeg_mem_dest(&codec, &to->bytes, &to->size);
    codec.image_height = static_cast<JDIMENSION>(from->height);
    codec.image_width = static_cast<JDIMENSION>(from->width);
    codec.input_components = static_cast<int>(from->channels);
    codec.in_color_space = from->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec);
    jpeg_set_quality(&codec, quality, TRUE);
    codec.optimize_coding = TRUE;  // fewer bytes to read and to decode, for good
    jpeg_start_compress(&codec, TRUE);
    write_lines(codec, from->pixels.data(), from->width * from->channels);
    jpeg_finish_compress(&codec);
  });
  jpeg_destroy_compress(&encoder.codec);
  require(done, fmt::format("{}: cannot be encoded: {}", name, encoder.exit.text));
  return {reinterpret_cast<const char*>(written.bytes), written.size};
}

}  // namespace lockstep::data
