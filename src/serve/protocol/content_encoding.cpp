#include "serve/protocol/content_encoding.hpp"

#include <zlib.h>

#include <array>
#include <new>

#include "lockstep/base/owned.hpp"
#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {

std::string decode_content(std::string body, const std::string& encoding, std::size_t most_bytes) {
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
    decoded.append(part.data(), part.size() - stream.avail_out);
    if (decoded.size() > most_bytes)
      throw RequestError(
          413, fmt::format("a body has at most {} bytes, also when it is decoded", most_bytes));
  }
  expect(state == Z_STREAM_END && stream.avail_in == 0, "the body is not {}, or is damaged",
         encoding);
  return decoded;
}

}  // namespace lockstep::serve
