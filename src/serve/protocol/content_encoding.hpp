#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/http.hpp"

namespace lockstep::serve {

/// A body without the encoding that the header Content-Encoding names: gzip, deflate or none.
/// Throws RequestError: 415 for another encoding, 400 when the bytes are damaged or cut off, 413
/// when they become more than `most_bytes`, 503 when `share` cannot have the bytes that it makes.
std::string decode_content(std::string body, const std::string& encoding, std::size_t most_bytes,
                           ByteBudget::Share& share);

}  // namespace lockstep::serve
