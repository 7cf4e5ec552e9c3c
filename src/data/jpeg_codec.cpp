#include "jpeg_codec.hpp"

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

}  // namespace

void install(ErrorExit& exit) {
  jpeg_std_error(&exit.manager);
  exit.manager.error_exit = leave;
  exit.manager.emit_message = on_message;
}

OwnDecoder::OwnDecoder() {
  install(decoder_.exit);
  decoder_.codec.err = &decoder_.exit.manager;
  check(guarded(decoder_, [](jpeg_decompress_struct& codec) { jpeg_create_decompress(&codec); }),
        "libjpeg could not start");
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
