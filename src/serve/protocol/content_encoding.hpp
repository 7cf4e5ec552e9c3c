#pragma once

#include <cstddef>
#include <string>

namespace lockstep::serve {

/// A body without the encoding that the header Content-Encoding names: gzip, deflate or none.
/// Throws RequestError: 415 for another encoding, 400 when the bytes are damaged or cut off, 413
/// when they become more than `most_bytes`.
std::string decode_content(std::string body, const std::string& encoding, std::size_t most_bytes);

}  // namespace lockstep::serve
