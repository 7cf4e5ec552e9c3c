#include <algorithm>

#include <fmt/format.h>
#include <webp/decode.h>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {

bool looks_like_webp(std::string_view bytes) {
  return bytes.starts_with("RIFF") &&
         bytes.substr(std::min<std::size_t>(8, bytes.size()), 4) == "WEBP";
}

Image decode_webp(std::string_view bytes, const std::string& name) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPBitstreamFeatures about;
  require(WebPGetFeatures(data, bytes.size(), &about) == VP8_STATUS_OK,
          fmt::format("{}: broken WebP: its header is damaged or cut off", name));
  require(about.has_animation == 0,
          fmt::format("{}: is an animated WebP, which is not one image", name));
  constexpr std::size_t channels = 3;
  const auto height = static_cast<std::size_t>(about.height),
             width = static_cast<std::size_t>(about.width);
  Image image = allocate_image(height, width, channels, name);
  const bool whole = WebPDecodeRGBInto(data, bytes.size(), image.pixels.data(), image.pixels.size(),
                                       static_cast<int>(width * channels)) != nullptr;
  require(whole, fmt::format("{}: broken WebP: damaged or cut off", name));
  return image;
}

}  // namespace lockstep::data
