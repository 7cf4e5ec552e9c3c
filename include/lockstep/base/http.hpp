#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

/// A request that has come completely.
struct HttpRequest {
  std::string method, path;                    ///< "GET", "/metrics"; without the query
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";  ///< Content-Type
  std::string body;
  std::map<std::string, std::string> headers = {};
};

/// Where a server listens, and what a client may cost it.
struct HttpSpec {
  std::string host = "127.0.0.1";     ///< an address in numbers, IPv4 or IPv6
  std::uint16_t port = 0;             ///< 0: any free one
  std::size_t most_connections = 64;  ///< further ones wait until one ends
  std::size_t most_body_bytes = 0;    ///< of a request; more is answered by 413
  unsigned silence_s = 10;            ///< a connection without any byte is closed after it
};

/// Answers HTTP/1.1 requests on its own thread until it ends. Every connection has a deadline
/// and a limited memory, whatever comes over it.
class HttpServer {
 public:
  using Answer = std::function<HttpResponse(const HttpRequest&)>;
  virtual ~HttpServer() = default;
  virtual std::uint16_t port() const = 0;  ///< that it listens on
};

/// `answer` is called on the server's thread; what it throws becomes the status 500 and a warning.
/// Throws InputError naming the address when nothing can listen there.
std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpServer::Answer answer);

/// The host and port of a key's value: "9400", "0.0.0.0:9400", "[::1]:9400"; without a host,
/// 127.0.0.1. Throws InputError naming the key.
HttpSpec parse_listen(const std::string& text, const std::string& key);

}  // namespace lockstep
