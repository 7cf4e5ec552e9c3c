#pragma once

#include <string>
#include <string_view>

#include "lockstep/data/image.hpp"

namespace lockstep::data {

// What decode_image tells apart. Both throw InputError naming `name`.
Image decode_jpeg(std::string_view bytes, const std::string& name);
Image decode_png(std::string_view bytes, const std::string& name);

/// Room for the pixels; refuses sizes that only a damaged header claims.
Image allocate_image(std::size_t height, std::size_t width, std::size_t channels,
                     const std::string& name);

}  // namespace lockstep::data
