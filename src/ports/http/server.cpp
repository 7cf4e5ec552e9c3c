#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {
namespace {

constexpr std::size_t connection_bytes = 32 * 1024;  // for a request's first line and headers

using Daemon = Owned<MHD_Daemon*, MHD_stop_daemon>;

struct Address {
  sockaddr_storage bytes = {};
  bool v6 = false;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

Address address_of(const HttpSpec& spec) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.bytes);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.bytes);
  if (::inet_pton(AF_INET, spec.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(spec.port);
    return address;
  }
  require(::inet_pton(AF_INET6, spec.host.c_str(), &v6.sin6_addr) == 1,
          fmt::format("'{}' is not an address in numbers", spec.host));
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(spec.port);
  address.v6 = true;
  return address;
}

/// A request that is still coming.
struct Incoming {
  HttpRequest request;
  bool too_long = false;
};

MHD_Result take_header(void* into, MHD_ValueKind, const char* name, const char* value) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  static_cast<Incoming*>(into)->request.headers[std::move(lower)] = value ? value : "";
  return MHD_YES;
}

class MicroHttpServer final : public HttpServer {
 public:
  MicroHttpServer(const HttpSpec& spec, Answer answer) : spec_(spec), answer_(std::move(answer)) {
    const Address address = address_of(spec);
    errno = 0;
    daemon_ = Daemon(MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | (address.v6 ? MHD_USE_IPv6 : MHD_NO_FLAG), 0, nullptr,
        nullptr, &MicroHttpServer::access, this, MHD_OPTION_SOCK_ADDR, address.get(),
        MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(spec.most_connections),
        MHD_OPTION_CONNECTION_TIMEOUT, spec.silence_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        connection_bytes, MHD_OPTION_NOTIFY_COMPLETED, &MicroHttpServer::completed, this,
        MHD_OPTION_END));
    require(bool{daemon_}, fmt::format("{}:{}: nothing can listen there: {}", spec.host, spec.port,
                                       errno != 0 ? std::strerror(errno) : "the library refuses"));
  }

  std::uint16_t port() const override {
    return MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_BIND_PORT)->port;
  }

 private:
  /// The library calls it when the headers are there, for each part of the body, and at its end.
  static MHD_Result access(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char*, const char* part, size_t* part_bytes,
                           void** state) {
    auto& server = *static_cast<MicroHttpServer*>(self);
    if (*state == nullptr) {
      auto incoming = std::make_unique<Incoming>();
      incoming->request.method = method;
      incoming->request.path = path;
      MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, incoming.get());
      *state = incoming.release();
      return MHD_YES;
    }
    auto& incoming = *static_cast<Incoming*>(*state);
    if (*part_bytes == 0) return server.respond(connection, incoming);
    incoming.too_long = incoming.too_long ||
                        incoming.request.body.size() + *part_bytes > server.spec_.most_body_bytes;
    if (!incoming.too_long) incoming.request.body.append(part, *part_bytes);
    *part_bytes = 0;
    return MHD_YES;
  }

  static void completed(void*, MHD_Connection*, void** state, MHD_RequestTerminationCode) {
    delete static_cast<Incoming*>(std::exchange(*state, nullptr));
  }

  HttpResponse answer(const Incoming& incoming) const {
    if (incoming.too_long)
      return {.status = MHD_HTTP_CONTENT_TOO_LARGE,
              .body = fmt::format("a body has at most {} bytes\n", spec_.most_body_bytes)};
    try {
      return answer_(incoming.request);
    } catch (const std::exception& error) {
      log::warn(
          fmt::format("{} {}: {}", incoming.request.method, incoming.request.path, error.what()));
      return {.status = MHD_HTTP_INTERNAL_SERVER_ERROR, .body = "it failed\n"};
    }
  }

  MHD_Result respond(MHD_Connection* connection, const Incoming& incoming) const {
    HttpResponse given = answer(incoming);
    MHD_Response* response = MHD_create_response_from_buffer(given.body.size(), given.body.data(),
                                                             MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, given.type.c_str());
    for (const auto& [name, value] : given.headers)
      MHD_add_response_header(response, name.c_str(), value.c_str());
    const MHD_Result result = MHD_queue_response(connection, given.status, response);
    MHD_destroy_response(response);
    return result;
  }

  const HttpSpec spec_;
  const Answer answer_;
  Daemon daemon_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpServer::Answer answer) {
  return std::make_unique<MicroHttpServer>(spec, std::move(answer));
}

}  // namespace lockstep
