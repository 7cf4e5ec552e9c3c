#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/image/jpeg/huffman_decoder.hpp"
#include "data/image/jpeg/jpeg_codec.hpp"
#include "data/image/pixels/resample.hpp"
#include "lockstep/data/box.hpp"

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
