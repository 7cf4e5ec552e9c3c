#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <fmt/format.h>
// jpeglib.h needs size_t and FILE before it.
#include <jerror.h>
#include <jpeglib.h>

#include "image_codecs.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

/// libjpeg reports a fatal error by a call that must not return. It is C, so the way out is longjmp
/// and not an exception; everything between setjmp and longjmp is therefore plain data.
struct ErrorExit {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer to it is ours
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

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

struct Decoder {
  ErrorExit exit;
  jpeg_decompress_struct codec;
};

/// Runs `step` on the codec; false when libjpeg gave up, with its words in exit.text. Nothing that
/// `step` does may own memory or throw.
template <class Step>
bool guarded(Decoder& decoder, Step step) {
  if (setjmp(decoder.exit.back) != 0) return false;
  step(decoder.codec);
  return true;
}

/// The codec of one thread: making one for each image would cost a third of a small image's time.
class ThreadDecoder {
 public:
  ThreadDecoder() {
    decoder_.codec.err = jpeg_std_error(&decoder_.exit.manager);
    decoder_.exit.manager.error_exit = leave;
    decoder_.exit.manager.emit_message = on_message;
    check(guarded(decoder_, [](jpeg_decompress_struct& codec) { jpeg_create_decompress(&codec); }),
          "libjpeg could not start");
  }
  ~ThreadDecoder() { jpeg_destroy_decompress(&decoder_.codec); }
  ThreadDecoder(const ThreadDecoder&) = delete;
  ThreadDecoder& operator=(const ThreadDecoder&) = delete;
  Decoder& get() { return decoder_; }

 private:
  Decoder decoder_{};
};

/// Leaves the thread's codec ready for the next image, however this one ended.
struct AtRest {
  jpeg_decompress_struct& codec;
  ~AtRest() { jpeg_abort_decompress(&codec); }
};

/// Always Adobe's convention, ink inverted: hardly a CMYK JPEG was made otherwise. `from` are 4
/// bytes a pixel, `to` 3; the same rounding as Pillow's.
void rgb_from_inverted_cmyk(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i, from += 4) {
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned ink = 255u - from[c], light = from[3];
      const unsigned product = ink * light + 128;
      *to++ = static_cast<std::uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
}

}  // namespace

Image decode_jpeg(std::string_view bytes, const std::string& name) {
  thread_local ThreadDecoder own;
  Decoder& decoder = own.get();
  const AtRest at_rest{decoder.codec};
  const auto refuse = [&] {
    throw InputError(fmt::format("{}: broken JPEG: {}", name, decoder.exit.text));
  };
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const bool begun = guarded(decoder, [=](jpeg_decompress_struct& codec) {
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
  const bool whole = guarded(decoder, [=](jpeg_decompress_struct& codec) {
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW row = pixels + codec.output_scanline * width * stored;
      jpeg_read_scanlines(&codec, &row, 1);
    }
    jpeg_finish_decompress(&codec);
  });
  if (!whole) refuse();
  if (stored == 4) {
    rgb_from_inverted_cmyk(pixels, pixels, height * width);
    image.channels = 3;
    image.pixels.resize(height * width * 3);
  }
  return image;
}

}  // namespace lockstep::data
