#include <algorithm>

#include <fmt/core.h>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/data/image/image_codecs.hpp"

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

}  // namespace lockstep::data
