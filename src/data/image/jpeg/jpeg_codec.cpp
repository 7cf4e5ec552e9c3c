#include "data/image/jpeg/jpeg_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::data::jpeg {
namespace {

void leave(j_common_ptr codec) {
  auto* exit = reinterpret_cast<ErrorExit*>(codec->err);
  codec->err->format_message(codec, exit->text);
  std::longjmp(exit->back, 1);
}

/// Warnings that leave the pixels whole: bytes between segments and unusual headers.
bool harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
         code == JWRN_TOO_MUCH_DATA;
}

void on_message(j_common_ptr codec, int level) {
  if (level < 0 && !harmless(codec->err->msg_code)) leave(codec);
}

/// libjpeg calls this before each line of blocks, or of pixels.
void on_progress(j_common_ptr common) {
  const auto& codec = *reinterpret_cast<j_decompress_ptr>(common);
  const auto scans = static_cast<std::uint64_t>(codec.input_scan_number);
  const std::uint64_t pixels = std::uint64_t{codec.image_height} * codec.image_width;
  if (scans <= most_scans && (scans <= 1 || scans * pixels <= most_scanned)) return;
  auto* exit = reinterpret_cast<ErrorExit*>(common->err);
  std::strcpy(exit->text, "it has more scans than any program writes; save it in another form");
  std::longjmp(exit->back, 1);
}

/// The tables that a file defines before its first scan: a bit for each number.
struct Tables {
  unsigned quantisation = 0, dc = 0, ac = 0;

  /// True when all tables in the codec are among them.
  bool include(const jpeg_decompress_struct& codec) const {
    for (unsigned t = 0; t < NUM_QUANT_TBLS; ++t)
      if (codec.quant_tbl_ptrs[t] != nullptr && (quantisation >> t & 1) == 0) return false;
    for (unsigned t = 0; t < NUM_HUFF_TBLS; ++t)
      if ((codec.dc_huff_tbl_ptrs[t] != nullptr && (dc >> t & 1) == 0) ||
          (codec.ac_huff_tbl_ptrs[t] != nullptr && (ac >> t & 1) == 0))
        return false;
    return true;
  }
  void add_quantisation(std::span<const std::uint8_t> segment) {
    while (!segment.empty()) {
      quantisation |= 1u << (segment[0] & 15);
      const std::size_t bytes = segment[0] >> 4 != 0 ? 129 : 65;
      segment = segment.subspan(std::min(bytes, segment.size()));
    }
  }
  void add_huffman(std::span<const std::uint8_t> segment) {
    while (segment.size() >= 17) {
      unsigned& kind = segment[0] >> 4 != 0 ? ac : dc;
      kind |= 1u << (segment[0] & 15);
      std::size_t bytes = 17;
      for (std::size_t length = 1; length <= 16; ++length) bytes += segment[length];
      segment = segment.subspan(std::min(bytes, segment.size()));
    }
  }
};

Tables tables_in(std::span<const std::uint8_t> file) {
  Tables tables;
  for (std::size_t at = 2; at + 4 <= file.size() && file[at] == 0xFF;) {
    const std::uint8_t marker = file[at + 1];
    if (marker == 0xFF) {  // any number of them may precede a marker
      ++at;
      continue;
    }
    const std::size_t length = std::size_t{file[at + 2]} << 8 | file[at + 3];
    if (marker == 0xDA || length < 2 || length > file.size() - at - 2) break;
    const auto segment = file.subspan(at + 4, length - 2);
    if (marker == 0xDB) tables.add_quantisation(segment);
    if (marker == 0xC4) tables.add_huffman(segment);
    at += 2 + length;
  }
  return tables;
}

}  // namespace

void install(ErrorExit& exit) {
  jpeg_std_error(&exit.manager);
  exit.manager.error_exit = leave;
  exit.manager.emit_message = on_message;
}

OwnDecoder::OwnDecoder() {
  install(decoder_.exit);
  make();
}

void OwnDecoder::make() {
  decoder_.codec.err = &decoder_.exit.manager;
  check(guarded(decoder_, [](jpeg_decompress_struct& codec) { jpeg_create_decompress(&codec); }),
        "libjpeg could not start");
  decoder_.exit.progress.progress_monitor = on_progress;
  decoder_.codec.progress = &decoder_.exit.progress;
}

Decoder& OwnDecoder::for_file(std::span<const std::uint8_t> file) {
  if (!tables_in(file).include(decoder_.codec)) {
    jpeg_destroy_decompress(&decoder_.codec);
    make();
  }
  return decoder_;
}

void rgb_from_inverted_cmyk(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels,
                            std::size_t step) {
  for (std::size_t i = 0; i < pixels; ++i, from += 4, to += step) {
    const unsigned light = from[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned product = (255u - from[c]) * light + 128;
      to[c] = static_cast<std::uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
}

}  // namespace lockstep::data::jpeg

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
