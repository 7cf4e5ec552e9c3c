#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {
namespace {

/// A JPEG in this thread's codec, its header read.
class OpenJpeg {
 public:
  OpenJpeg(std::string_view bytes, const std::string& name)
      : name_(name), decoder_(own().for_file(unsigned_bytes(bytes))), at_rest_{decoder_.codec} {
    const std::span<const std::uint8_t> file = unsigned_bytes(bytes);
    run([=](jpeg_decompress_struct& codec) {
      jpeg_mem_src(&codec, file.data(), file.size());
      jpeg_read_header(&codec, TRUE);
      if (codec.num_components == 4)
        codec.out_color_space = JCS_CMYK;
      else
        codec.out_color_space = codec.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
      codec.dct_method = JDCT_ISLOW;
      codec.do_fancy_upsampling = TRUE;
      jpeg_calc_output_dimensions(&codec);
    });
  }
  std::size_t height() const { return decoder_.codec.output_height; }
  std::size_t width() const { return decoder_.codec.output_width; }
  std::size_t channels() const {
    return static_cast<std::size_t>(decoder_.codec.output_components);
  }

  template <class Step>
  void run(Step step) {
    // The text is there only after the step.
    if (!jpeg::guarded(decoder_, step))
      throw InputError(fmt::format("{}: broken JPEG: {}", name_, decoder_.exit.text));
  }

 private:
  static jpeg::OwnDecoder& own() {
    thread_local jpeg::OwnDecoder decoder;
    return decoder;
  }
  static std::span<const std::uint8_t> unsigned_bytes(std::string_view bytes) {
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }
  const std::string& name_;
  jpeg::Decoder& decoder_;
  jpeg::AtRest at_rest_;
};

}  // namespace

ImageShape jpeg_shape(std::string_view bytes, const std::string& name) {
  const OpenJpeg jpeg(bytes, name);
  require_decodable(jpeg.height(), jpeg.width(), name);
  return {jpeg.height(), jpeg.width(), std::min<std::size_t>(jpeg.channels(), 3)};
}

Image decode_jpeg(std::string_view bytes, const std::string& name) {
  OpenJpeg jpeg(bytes, name);
  const std::size_t height = jpeg.height(), width = jpeg.width(), stored = jpeg.channels();
  Image image = allocate_image(height, width, stored, name);
  std::uint8_t* pixels = image.pixels.data();
  jpeg.run([=](jpeg_decompress_struct& codec) {
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW row = pixels + codec.output_scanline * width * stored;
      jpeg_read_scanlines(&codec, &row, 1);
    }
    jpeg_finish_decompress(&codec);
  });
  if (stored == 4) {
    jpeg::rgb_from_inverted_cmyk(pixels, pixels, height * width, 3);
    image.channels = 3;
    image.pixels.resize(height * width * 3);
  }
  return image;
}

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
