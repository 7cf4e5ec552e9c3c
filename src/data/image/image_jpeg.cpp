#include <fmt/core.h>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::data {

Image decode_jpeg(std::string_view bytes, const std::string& name) {
  thread_local jpeg::OwnDecoder own;
  jpeg::Decoder& decoder =
      own.for_file({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  const jpeg::AtRest at_rest{decoder.codec};
  const auto refuse = [&] {
    throw InputError(fmt::format("{}: broken JPEG: {}", name, decoder.exit.text));
  };
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const bool begun = jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    jpeg_mem_src(&codec, data, bytes.size());
    jpeg_read_header(&codec, TRUE);
    if (codec.num_components == 4)
      codec.out_color_space = JCS_CMYK;
    else
      codec.out_color_space = codec.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    codec.dct_method = JDCT_ISLOW;
    codec.do_fancy_upsampling = TRUE;
    jpeg_calc_output_dimensions(&codec);
  });
  if (!begun) refuse();

  const std::size_t height = decoder.codec.output_height, width = decoder.codec.output_width;
  const std::size_t stored = static_cast<std::size_t>(decoder.codec.output_components);
  Image image = allocate_image(height, width, stored, name);
  std::uint8_t* pixels = image.pixels.data();
  const bool whole = jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW row = pixels + codec.output_scanline * width * stored;
      jpeg_read_scanlines(&codec, &row, 1);
    }
    jpeg_finish_decompress(&codec);
  });
  if (!whole) refuse();
  if (stored == 4) {
    jpeg::rgb_from_inverted_cmyk(pixels, pixels, height * width, 3);
    image.channels = 3;
    image.pixels.resize(height * width * 3);
  }
  return image;
}

}  // namespace lockstep::data
