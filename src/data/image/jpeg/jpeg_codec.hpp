#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "data/image/jpeg/huffman_decoder.hpp"
#include "data/image/pixels/resample.hpp"
#include "lockstep/data/box.hpp"

// jpeglib.h needs size_t and FILE before it.
#include <jerror.h>
#include <jpeglib.h>

#include "lockstep/base/error.hpp"

namespace lockstep::data::jpeg {

/// libjpeg reports a fatal error by a call that must not return. It is C, so the way out is
/// longjmp, not an exception. Everything between setjmp and longjmp is therefore plain data.
struct ErrorExit {
  jpeg_error_mgr manager;  ///< first, so that libjpeg's pointer to it points to this
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];  ///< why libjpeg gave up
  jpeg_progress_mgr progress;  ///< ends the decoding of a file of too many scans
};

/// A file of one more scan is an error: libjpeg goes over all blocks for each, and a few bytes are
/// a scan. Programs write 10 or so. Also limited is what all scans together go over, in pixels.
inline constexpr int most_scans = 100;
inline constexpr std::uint64_t most_scanned = std::uint64_t{3} << 30;

template <class Codec>
struct Guarded {
  ErrorExit exit;
  Codec codec;
};
using Decoder = Guarded<jpeg_decompress_struct>;
using Encoder = Guarded<jpeg_compress_struct>;

/// Makes fatal errors, and warnings that cost pixels, end the current step.
void install(ErrorExit& exit);

/// Runs `step` on the codec; false when libjpeg gave up, with its error text in exit.text. Nothing
/// that `step` does may own memory or throw.
template <class Codec, class Step>
bool guarded(Guarded<Codec>& guard, Step step) {
  if (setjmp(guard.exit.back) != 0) return false;
  step(guard.codec);
  return true;
}

/// The codec of one thread: making one for each image would cost a third of a small image's time.
class OwnDecoder {
 public:
  OwnDecoder();
  ~OwnDecoder() { jpeg_destroy_decompress(&decoder_.codec); }
  OwnDecoder(const OwnDecoder&) = delete;
  OwnDecoder& operator=(const OwnDecoder&) = delete;
  /// Prepares the codec for this file. libjpeg would keep an earlier file's tables for one that
  /// brings none. Here such a file gets a codec without tables, so that no result depends on what
  /// was decoded before.
  Decoder& for_file(std::span<const std::uint8_t> file);

 private:
  void make();
  Decoder decoder_{};
};

/// Leaves a codec ready for the next image, however this one ended.
struct AtRest {
  jpeg_decompress_struct& codec;
  ~AtRest() { jpeg_abort_decompress(&codec); }
};

/// CMYK to RGB, always by Adobe's convention of inverted ink: other CMYK JPEGs hardly exist. `from`
/// has 4 bytes a pixel; `to` has `step` bytes (3 or 4) and may be `from`. It rounds as Pillow does.
void rgb_from_inverted_cmyk(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels,
                            std::size_t step);

}  // namespace lockstep::data::jpeg

namespace lockstep::data {

/// Decodes only the part of a JPEG that is needed: lines above it are only entropy-decoded, lines
/// below it are not read. The pixels are those of decoding the whole image (the exact integer DCT,
/// smooth chroma upsampling), whatever the part.
///
/// **Thread safety:** one for each thread.
class JpegRegion {
 public:
  struct Request {
    std::size_t height = 0, width = 0;  ///< of the whole image, as in the shard
    bool grey = false;                  ///< the image must be grey: pixels have one value only
    std::size_t reduction = 1;          ///< 1, 2, 4 or 8: of the whole image, by a smaller DCT
    Box box;                            ///< wanted, in pixels of the (reduced) image
  };
  /// The picture is valid until the next call and shows at least the box. Throws InputError saying
  /// what is wrong; the caller adds which image it is.
  Picture decode(std::span<const std::uint8_t> bytes, const Request& request);

 private:
  static void begin(jpeg::Decoder& decoder, std::span<const std::uint8_t> bytes,
                    const Request& request);
  jpeg::EntropyDecoder entropy_;  // outlives the codec that calls it
  jpeg::OwnDecoder own_;
  std::vector<std::uint8_t> pixels_;
};

/// A side of the image after reduction.
inline std::size_t reduced(std::size_t side, std::size_t reduction) {
  return (side + reduction - 1) / reduction;
}

}  // namespace lockstep::data
