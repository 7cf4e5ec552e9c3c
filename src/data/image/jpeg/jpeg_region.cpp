#include "data/image/jpeg/jpeg_region.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

// Smooth upsampling mixes a chroma sample with its neighbours. So one more pixel is decoded on
// either side, and an edge is treated as in the whole image.
constexpr std::size_t column_margin = 2;

[[noreturn]] void refuse(const jpeg::Decoder& decoder) {
  throw InputError(fmt::format("broken JPEG: {}", decoder.exit.text));
}

/// The lines [top, top + lines), `stride` bytes from line to line.
void read_lines(jpeg_decompress_struct& codec, std::size_t top, std::size_t lines,
                std::uint8_t* pixels, std::size_t stride) {
  if (top > 0) jpeg_skip_scanlines(&codec, static_cast<JDIMENSION>(top));
  while (codec.output_scanline < top + lines) {
    constexpr std::size_t most = 4;  // libjpeg gives as many as an upsampling makes, 1 to 4
    JSAMPROW rows[most];
    const std::size_t done = codec.output_scanline - top, left = lines - done;
    for (std::size_t i = 0; i < most; ++i)
      rows[i] = pixels + std::min(done + i, lines - 1) * stride;
    jpeg_read_scanlines(&codec, rows, static_cast<JDIMENSION>(std::min(most, left)));
  }
}

}  // namespace

void JpegRegion::begin(jpeg::Decoder& decoder, std::span<const std::uint8_t> bytes,
                       const Request& request) {
  const auto reduction = static_cast<unsigned>(request.reduction);
  const bool begun = jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    jpeg_mem_src(&codec, bytes.data(), bytes.size());
    jpeg_read_header(&codec, TRUE);
    codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    codec.scale_num = 1;
    codec.scale_denom = reduction;
    codec.dct_method = JDCT_ISLOW;
    codec.do_fancy_upsampling = TRUE;
  });
  if (!begun) refuse(decoder);
  const jpeg_decompress_struct& codec = decoder.codec;
  if (codec.image_height != request.height || codec.image_width != request.width)
    throw InputError(fmt::format("its JPEG is {} x {} pixels, but {} x {} are stored as its size",
                                 codec.image_height, codec.image_width, request.height,
                                 request.width));
  require(!request.grey || codec.num_components == 1,
          "its JPEG is in colour, but the data set is grey");
}

Picture JpegRegion::decode(std::span<const std::uint8_t> bytes, const Request& request) {
  jpeg::Decoder& decoder = own_.for_file(bytes);
  const jpeg::AtRest at_rest{decoder.codec};
  begin(decoder, bytes, request);
  const Box& box = request.box;
  const std::size_t full_width = reduced(request.width, request.reduction);
  const std::size_t left = box.left - std::min(box.left, column_margin);
  const std::size_t right = std::min(full_width, box.left + box.width + column_margin);
  JDIMENSION first = static_cast<JDIMENSION>(left), columns = static_cast<JDIMENSION>(right - left);
  JDIMENSION *const first_at = &first, *const columns_at = &columns;
  const bool started = jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    jpeg_start_decompress(&codec);
    jpeg_crop_scanline(&codec, first_at, columns_at);
  });
  if (!started) refuse(decoder);
  entropy_.take_over(decoder.codec, first, columns);

  const std::size_t stride = std::size_t{columns} * 4;
  pixels_.resize(std::max(pixels_.size(), box.height * stride + resample_slack));
  std::uint8_t* const pixels = pixels_.data();
  const bool whole = jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    read_lines(codec, box.top, box.height, pixels, stride);
  });
  if (!whole) refuse(decoder);
  if (decoder.codec.out_color_space == JCS_CMYK)
    jpeg::rgb_from_inverted_cmyk(pixels, pixels, box.height * columns, 4);
  return {.pixels = pixels, .stride = stride, .top = box.top, .left = first};
}

}  // namespace lockstep::data
