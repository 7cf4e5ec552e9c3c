#include "serve/protocol/route.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <optional>

#include "lockstep/base/owned.hpp"

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

namespace {

std::vector<std::string> words_of(std::string_view path) {
  std::vector<std::string> words;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());
    words.emplace_back(path.substr(1, end - 1));
    path.remove_prefix(end);
  }
  return words;
}

/// models/NAME[/versions/VERSION][/WHAT]
std::optional<Route> model_route(const std::vector<std::string>& words) {
  static const std::map<std::string, Resource> of_model = {{"", Resource::model},
                                                           {"ready", Resource::model_ready},
                                                           {"config", Resource::model_config},
                                                           {"stats", Resource::statistics},
                                                           {"infer", Resource::infer}};
  if (words.size() < 3 || words[1] != "models" || words[2].empty()) return std::nullopt;
  Route route{.model = words[2]};
  std::size_t at = 3;
  if (words.size() > 4 && words[3] == "versions") {
    route.version = words[4];
    at = 5;
  }
  const std::string what = at < words.size() ? words[at] : "";
  const auto found = of_model.find(what);
  if (words.size() > at + 1 || (at < words.size() && what.empty()) || found == of_model.end())
    return std::nullopt;
  route.resource = found->second;
  return route;
}

std::optional<Route> route_of(std::string_view path) {
  static const std::map<std::string, Resource, std::less<>> fixed = {
      {"/", Resource::page},
      {"/metrics", Resource::metrics},
      {"/openapi.json", Resource::description},
      {"/v2", Resource::server},
      {"/v2/", Resource::server},
      {"/v2/health/live", Resource::live},
      {"/v2/health/ready", Resource::ready},
      {"/v2/models/stats", Resource::statistics},
      {"/v2/repository/index", Resource::index}};
  if (const auto found = fixed.find(path); found != fixed.end()) return Route{found->second};
  if (!path.starts_with("/v2/")) return std::nullopt;
  return model_route(words_of(path));
}

}  // namespace

Route find_route(std::string_view method, std::string_view path, std::string& allowed) {
  const auto route = route_of(path);
  if (!route)
    throw RequestError(404, "nothing is at this path; a model answers at /v2/models/NAME/infer");
  const bool takes_a_body =
      route->resource == Resource::infer || route->resource == Resource::index;
  allowed = takes_a_body ? "POST" : "GET, HEAD";
  const bool fits = takes_a_body ? method == "POST" : method == "GET" || method == "HEAD";
  if (!fits) throw RequestError(405, fmt::format("this path takes {}", allowed));
  return *route;
}

}  // namespace lockstep::serve
