#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "data/image/jpeg/jpeg_entropy.hpp"
#include "data/image/pixels/resample.hpp"
#include "lockstep/data/box.hpp"

namespace lockstep::data {

/// Decodes the part of a JPEG that is needed: what lies above is only entropy-decoded, what lies
/// below is not looked at. The pixels are those of the whole image's decoding (the exact integer
/// DCT, smooth chroma upsampling), whatever the part. One for each thread.
class JpegRegion {
 public:
  struct Request {
    std::size_t height = 0, width = 0;  ///< of the whole image, as the shard has it
    bool grey = false;                  ///< the image must be grey: pixels have one value only
    std::size_t reduction = 1;          ///< 1, 2, 4 or 8: of the whole image, by a smaller DCT
    Box box;                            ///< wanted, in pixels of the (reduced) image
  };
  /// The picture stands until the next call and shows at least the box. Throws InputError saying
  /// what is wrong, but not with which image: that the caller knows.
  Picture decode(std::span<const std::uint8_t> bytes, const Request& request);

 private:
  static void begin(jpeg::Decoder& decoder, std::span<const std::uint8_t> bytes,
                    const Request& request);
  jpeg::EntropyDecoder entropy_;  // outlives the codec that calls it
  jpeg::OwnDecoder own_;
  std::vector<std::uint8_t> pixels_;
};

/// A side of the image when it is reduced.
inline std::size_t reduced(std::size_t side, std::size_t reduction) {
  return (side + reduction - 1) / reduction;
}

}  // namespace lockstep::data
