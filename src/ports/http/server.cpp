#include <microhttpd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "ports/http/listening.hpp"
#include "ports/http/request_deadline.hpp"

namespace lockstep {
namespace {

constexpr std::size_t connection_bytes = 32 * 1024;  // for a request's first line and headers

using Daemon = Owned<MHD_Daemon*, MHD_stop_daemon>;

/// A request that is still coming, and then its answer.
struct Incoming {
  HttpRequest request;
  const std::shared_ptr<http::Reply> reply = std::make_shared<http::Reply>();
  std::unique_ptr<HttpVisit> visit;  ///< none where a response refuses it
  ByteBudget::Share share;           ///< of its body and its response
  std::size_t room = 0;              ///< for its body, of that
  bool asked = false;                ///< the service has it
  bool broken = false;               ///< where the next one begins is unknown
  explicit Incoming(const std::shared_ptr<ByteBudget>& budget) : share(budget) {}
};

/// Answers at once.
class AtOnce final : public HttpService {
 public:
  explicit AtOnce(HttpServer::Answer answer) : answer_(std::move(answer)) {}
  Begun begin(const HttpRequest&) override { return std::make_unique<Visit>(answer_); }

 private:
  class Visit final : public HttpVisit {
   public:
    explicit Visit(const HttpServer::Answer& answer) : answer_(answer) {}
    void answer(HttpRequest request, Respond respond) override { respond(answer_(request)); }

   private:
    const HttpServer::Answer& answer_;
  };
  const HttpServer::Answer answer_;
};

class MicroHttpServer final : public HttpServer {
 public:
  MicroHttpServer(const HttpSpec& spec, HttpService& service)
      : spec_(spec),
        service_(service),
        deadline_({.silence_s = static_cast<double>(spec.silence_s),
                   .body_bytes_per_s = static_cast<double>(spec.body_bytes_per_s),
                   .body_s = spec.body_s},
                  [this] { return client_waits(); }) {
    if (!spec.socket.empty()) local_.emplace(spec.socket);
    Descriptor listens = local_ ? local_->take() : listen_at(spec.host, spec.port);
    port_ = local_ ? 0 : port_of(listens);
    listening_ = listens.release();  // the library's to close
    std::vector<MHD_OptionItem> options = {{MHD_OPTION_LISTEN_SOCKET, listening_, nullptr}};
    if (spec_.tls) http::add_tls(*spec_.tls, options);
    options.push_back({MHD_OPTION_END, 0, nullptr});
    daemon_ = Daemon(MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
            (spec.tls ? MHD_USE_TLS : MHD_NO_FLAG),
        0, nullptr, nullptr, &MicroHttpServer::access, this, MHD_OPTION_ARRAY, options.data(),
        MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(spec.most_connections),
        MHD_OPTION_CONNECTION_TIMEOUT, spec.silence_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        connection_bytes, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_UNESCAPE_CALLBACK,
        &http::decode_path, nullptr, MHD_OPTION_NOTIFY_COMPLETED, &MicroHttpServer::completed, this,
        MHD_OPTION_NOTIFY_CONNECTION, &MicroHttpServer::connected, this, MHD_OPTION_END));
    require(bool{daemon_},
            fmt::format("{}: no server can start there: the library refuses",
                        local_ ? spec.socket : fmt::format("{}:{}", spec.host, spec.port)));
  }

  MicroHttpServer(const HttpSpec& spec, std::unique_ptr<HttpService> service)
      : MicroHttpServer(spec, *service) {
    owned_ = std::move(service);
  }

  /// The library ends the process if it stops while a connection is parked.
  ~MicroHttpServer() override {
    std::set<std::shared_ptr<http::Reply>> waiting;
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
      waiting.swap(waiting_);
    }
    for (const auto& reply : waiting) reply->take(ending());
    daemon_.reset();
  }

  std::uint16_t port() const override { return port_; }
  std::size_t open_requests() const override { return open_; }

  void end_gone() override {
    std::set<std::shared_ptr<http::Reply>> waiting;
    {
      const std::scoped_lock lock(mutex_);
      waiting = waiting_;
    }
    for (const auto& reply : waiting)
      if (reply->is_alone())
        reply->take(service_.error(MHD_HTTP_BAD_REQUEST, "the connection was closed"));
  }

 private:
  HttpResponse ending() const {
    return service_.error(MHD_HTTP_SERVICE_UNAVAILABLE, "the server ends");
  }

  /// The library calls it when the headers are there, for each part of the body, and at its end.
  static MHD_Result access(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char* version, const char* part,
                           size_t* part_bytes, void** state) {
    auto& server = *static_cast<MicroHttpServer*>(self);
    try {
      if (*state == nullptr)
        return server.begin(connection, {connection, path, version}, path, method, state);
      auto& incoming = *static_cast<Incoming*>(*state);
      if (*part_bytes == 0) return server.answer(connection, incoming);
      server.deadline_.came(connection, *part_bytes);
      server.take_part(incoming, {part, *part_bytes});
      *part_bytes = 0;
      return MHD_YES;
    } catch (const std::exception& error) {  // out of memory: the connection is closed
      log::warn(fmt::format("{} {}: {}", method, path, error.what()));
      return MHD_NO;
    }
  }

  /// For a place, which the library then gives no one. The system has it until then.
  bool client_waits() const {
    return connections_ >= spec_.most_connections && is_readable(listening_);
  }

  MHD_Result begin(MHD_Connection* connection, http::StrictHeader header, const char* path,
                   const char* method, void** state) {
    deadline_.await_body(connection);
    auto incoming = std::make_unique<Incoming>(spec_.budget);
    incoming->request.method = method;
    incoming->request.path = path;
    incoming->request.headers = header.take();
    incoming->broken = !header.fault().empty();
    auto begun = incoming->broken ? service_.error(MHD_HTTP_BAD_REQUEST, header.fault())
                                  : service_.begin(incoming->request);
    if (auto* refusal = std::get_if<HttpResponse>(&begun))
      incoming->reply->take(std::move(*refusal));
    else
      incoming->visit = std::move(std::get<std::unique_ptr<HttpVisit>>(begun));
    ++open_;
    Incoming& coming = *incoming;
    *state = incoming.release();
    // Its client asks before it sends the body. All others have begun to send it, and read later.
    const bool asks = coming.broken || coming.request.headers.contains("expect");
    return asks && coming.reply->is_there() ? respond(connection, coming) : MHD_YES;
  }

  void take_part(Incoming& incoming, std::string_view part) {
    if (incoming.reply->is_there()) return;
    std::string& body = incoming.request.body;
    if (body.size() + part.size() > spec_.most_body_bytes)
      return incoming.reply->take(
          service_.error(MHD_HTTP_CONTENT_TOO_LARGE,
                         fmt::format("a body has at most {} bytes", spec_.most_body_bytes)));
    if (!make_room(incoming, body.size() + part.size())) {
      body = {};
      return incoming.reply->take(full());
    }
    body.append(part);
  }

  /// What a client has announced is taken at once from the system, which gives it as it is used,
  /// but from the budget as it comes: to announce costs nothing. Else it grows by doubling.
  bool make_room(Incoming& incoming, std::size_t bytes) const {
    std::string& body = incoming.request.body;
    if (body.empty()) {
      const auto& headers = incoming.request.headers;
      const auto length = headers.find("content-length");
      if (length != headers.end())
        body.reserve(std::min<std::size_t>(whole_number<std::uint64_t>(length->second).value_or(0),
                                           spec_.most_body_bytes));
    }
    const bool announced = incoming.request.headers.contains("content-length");
    if (bytes <= incoming.room) return true;
    const std::size_t room =
        announced ? bytes : std::min(std::max(bytes, 2 * incoming.room), spec_.most_body_bytes);
    if (!incoming.share.grow(room - incoming.room)) return false;
    incoming.room = room;
    if (!announced) body.reserve(room);
    return true;
  }

  HttpResponse full() const {
    HttpResponse response = service_.error(MHD_HTTP_SERVICE_UNAVAILABLE, no_bytes_left);
    response.headers["Retry-After"] = "1";
    return response;
  }

  static void connected(void* self, MHD_Connection* connection, void**,
                        MHD_ConnectionNotificationCode what) {
    auto& server = *static_cast<MicroHttpServer*>(self);
    if (!std::exchange(server.considerate_, true)) let_others_finish();
    auto& deadline = server.deadline_;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      ++server.connections_;
      deadline.await(connection);
    } else {
      deadline.forget(connection);
      --server.connections_;
    }
  }

  static void completed(void* self, MHD_Connection* connection, void** state,
                        MHD_RequestTerminationCode) {
    const std::unique_ptr<Incoming> incoming(
        static_cast<Incoming*>(std::exchange(*state, nullptr)));
    if (!incoming) return;
    auto& server = *static_cast<MicroHttpServer*>(self);
    server.deadline_.await(connection);
    --server.open_;
    const std::scoped_lock lock(server.mutex_);
    server.waiting_.erase(incoming->reply);
  }

  MHD_Result answer(MHD_Connection* connection, Incoming& incoming) {
    deadline_.forget(connection);
    if (!incoming.asked && !incoming.reply->is_there()) ask(incoming);
    return park(connection, incoming.reply) ? MHD_YES : respond(connection, incoming);
  }

  void ask(Incoming& incoming) {
    incoming.asked = true;
    const std::string method = incoming.request.method, path = incoming.request.path;
    try {
      incoming.visit->answer(
          std::move(incoming.request),
          [reply = incoming.reply](HttpResponse response) { reply->take(std::move(response)); });
    } catch (const std::exception& error) {
      log::warn(fmt::format("{} {}: {}", method, path, error.what()));
      incoming.reply->take(service_.error(MHD_HTTP_INTERNAL_SERVER_ERROR, "it failed"));
    }
  }

  /// False when the response is there already.
  bool park(MHD_Connection* connection, const std::shared_ptr<http::Reply>& reply) {
    const std::scoped_lock lock(mutex_, reply->mutex);
    if (ends_ && !reply->response) reply->response = ending();
    if (reply->response) return false;
    waiting_.insert(reply);
    MHD_suspend_connection(connection);
    reply->parked = connection;
    return true;
  }

  MHD_Result respond(MHD_Connection* connection, Incoming& incoming) {
    HttpResponse& given = *incoming.reply->response;
    if (!incoming.share.grow(given.body.size())) given = full();
    deadline_.leaves(connection, given.body.size());
    // It is there until completed().
    MHD_Response* response = MHD_create_response_from_buffer(
        given.body.size(), const_cast<char*>(given.body.data()), MHD_RESPMEM_PERSISTENT);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, given.type.c_str());
    for (const auto& [name, value] : given.headers)
      MHD_add_response_header(response, name.c_str(), value.c_str());
    if (incoming.broken) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    const MHD_Result result = MHD_queue_response(connection, given.status, response);
    MHD_destroy_response(response);
    return result;
  }

  const HttpSpec spec_;
  std::unique_ptr<HttpService> owned_;
  HttpService& service_;
  std::optional<http::LocalSocket> local_;
  std::atomic<std::size_t> open_{0}, connections_{0};
  std::uint16_t port_ = 0;
  int listening_ = -1;  // its descriptor
  std::mutex mutex_;
  bool ends_ = false;
  bool considerate_ = false;                        // of the server's thread: let_others_finish()
  std::set<std::shared_ptr<http::Reply>> waiting_;  // parked
  http::RequestDeadline deadline_;
  Daemon daemon_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpServer::Answer answer) {
  return std::make_unique<MicroHttpServer>(spec, std::make_unique<AtOnce>(std::move(answer)));
}

std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpService& service) {
  return std::make_unique<MicroHttpServer>(spec, service);
}

}  // namespace lockstep
