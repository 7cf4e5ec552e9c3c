#include "serve/protocol/content_encoding.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include "lockstep/base/owned.hpp"
#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {

namespace {

/// The room is taken before the bytes: they may be a thousand times those that came.
void append(std::string& decoded, std::string_view part, std::size_t most_bytes,
            ByteBudget::Share& share) {
  const std::size_t needed = decoded.size() + part.size();
  if (needed > most_bytes)
    throw RequestError(
        413, fmt::format("a body has at most {} bytes, also when it is decoded", most_bytes));
  if (needed > decoded.capacity()) {
    const std::size_t room = std::min(std::max(needed, 2 * decoded.capacity()), most_bytes);
    if (!share.grow(room - (decoded.empty() ? 0 : decoded.capacity())))
      throw RequestError(503, no_bytes_left);
    decoded.reserve(room);
  }
  decoded.append(part);
}

}  // namespace

std::string decode_content(std::string body, const std::string& encoding, std::size_t most_bytes,
                           ByteBudget::Share& share) {
  if (encoding.empty() || encoding == "identity") return body;
  if (encoding != "gzip" && encoding != "deflate")
    throw RequestError(
        415, fmt::format("Content-Encoding: '{}' is not known; gzip and deflate are", encoding));
  constexpr int either_header = 15 + 32;  // of gzip or zlib, whichever is there
  z_stream stream = {};
  if (inflateInit2(&stream, either_header) != Z_OK) throw std::bad_alloc();
  const Owned<z_stream*, inflateEnd> inflating(&stream);
  stream.next_in = reinterpret_cast<Bytef*>(body.data());
  stream.avail_in = static_cast<uInt>(body.size());
  std::string decoded;
  std::array<char, 1 << 16> part;
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = part.size();
    state = inflate(&stream, Z_NO_FLUSH);
    append(decoded, {part.data(), part.size() - stream.avail_out}, most_bytes, share);
  }
  expect(state == Z_STREAM_END && stream.avail_in == 0, "the body is not {}, or is damaged",
         encoding);
  return decoded;
}

}  // namespace lockstep::serve
