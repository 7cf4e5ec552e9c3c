#include <arpa/inet.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <unordered_map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/grpc.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"
#include "ports/grpc/call.hpp"
#include "ports/grpc/methods.hpp"

// One thread takes calls, their messages and their responses from the library's queue, as the
// server of HTTP does: a call that waits for its answer holds no thread. Before its message comes,
// a call is asked for the token; of the message only then.
namespace lockstep {
namespace grpc {
namespace {

constexpr double look_every_s = 1;
constexpr std::chrono::seconds to_leave{2};  // for the last replies, when the server ends
constexpr int idle_ms = 300'000;             // after which a connection without calls is closed

::grpc::StatusCode code_of(unsigned status) {
  switch (status) {
    case 400:
    case 405:
    case 415:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case 401:
      return ::grpc::StatusCode::UNAUTHENTICATED;
    case 404:
      return ::grpc::StatusCode::NOT_FOUND;
    case 413:
      return ::grpc::StatusCode::RESOURCE_EXHAUSTED;
    case 503:
      return ::grpc::StatusCode::UNAVAILABLE;
    case 504:
      return ::grpc::StatusCode::DEADLINE_EXCEEDED;
    default:
      return ::grpc::StatusCode::INTERNAL;
  }
}

/// OK for a document, also one of a server that is not ready (503).
::grpc::Status status_of(const HttpResponse& response) {
  if (response.status == 200) return ::grpc::Status::OK;
  const auto json = nlohmann::json::parse(response.body, nullptr, false);
  if (!json.is_object()) return {code_of(response.status), response.body};
  const auto error = json.find("error");
  if (error == json.end() || !error->is_string()) return ::grpc::Status::OK;
  return {code_of(response.status), error->get<std::string>()};
}

/// Why nothing can listen there: the library does not tell.
std::string obstacle(const HttpSpec& spec) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  const bool is_v4 = ::inet_pton(AF_INET, spec.host.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, spec.host.c_str(), &v6.sin6_addr) != 1)
    return "it is not an address in numbers";
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(spec.port);
  const Owned<int, ::close, -1> tried(
      ::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(tried.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* address =
      is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  const bool listens = ::bind(tried.get(), address, is_v4 ? sizeof v4 : sizeof v6) == 0 &&
                       ::listen(tried.get(), 1) == 0;
  return listens ? "the library refuses" : std::strerror(errno);
}

std::shared_ptr<::grpc::ServerCredentials> credentials_of(const HttpSpec& spec) {
  if (!spec.tls) return ::grpc::InsecureServerCredentials();
  ::grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({spec.tls->key, spec.tls->certificate});
  return ::grpc::SslServerCredentials(options);
}

int at_most(std::size_t count) {
  return static_cast<int>(std::min<std::size_t>(count, std::numeric_limits<int>::max()));
}

std::optional<double> left_s(const ::grpc::ServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return std::chrono::duration<double>(deadline - std::chrono::system_clock::now()).count();
}

class GrpcServer final : public HttpServer {
 public:
  GrpcServer(const HttpSpec& spec, HttpService& service) : spec_(spec), service_(service) {
    gpr_set_log_function([](gpr_log_func_args*) {});  // all lines are log's
    const bool v6 = spec.host.find(':') != spec.host.npos;
    const std::string address =
        fmt::format("{}:{}", v6 ? "[" + spec.host + "]" : spec.host, spec.port);
    ::grpc::ResourceQuota quota;
    quota.Resize(spec.most_pending_bytes);
    ::grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials_of(spec), &port_)
        .RegisterAsyncGenericService(&generic_)
        .SetMaxReceiveMessageSize(at_most(spec.most_body_bytes))
        .SetMaxSendMessageSize(-1)
        .SetResourceQuota(quota)
        .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
        .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, at_most(spec.most_connections))
        .AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, idle_ms)
        .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, at_most(spec.silence_s * 1000))
        // A small message can have a large content.
        .AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0)
        .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false)
        .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    require(server_ != nullptr && port_ != 0,
            fmt::format("{}: nothing can listen there: {}", address, obstacle(spec)));
    outbox_ = std::make_shared<Outbox>(*queue_, &bell_);
    thread_ = std::thread([this] { run(); });
  }

  ~GrpcServer() override {
    ends_ = true;
    outbox_->wake();
    server_->Shutdown(std::chrono::system_clock::now() + to_leave);
    outbox_->close();
    queue_->Shutdown();
    thread_.join();
  }
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  std::uint16_t port() const override { return static_cast<std::uint16_t>(port_); }
  std::size_t open_requests() const override { return open_; }

 private:
  HttpResponse ending() const { return service_.error(503, "the server ends"); }

  void run() {
    let_others_finish();
    await();
    for (double next_look_s = now_s() + look_every_s;;) {
      void* tag = nullptr;
      bool ok = false;
      const auto next =
          queue_->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::seconds(1));
      if (next == ::grpc::CompletionQueue::SHUTDOWN) return;
      const bool came = next == ::grpc::CompletionQueue::GOT_EVENT;
      if (came && tag != &bell_) step(*static_cast<Call*>(tag), ok);
      for (auto& [number, response] : outbox_->take(came && tag == &bell_))
        if (const auto call = calls_.find(number); call != calls_.end())
          answer(*call->second, response);
      if (ends_) end_waiting();
      if (now_s() < next_look_s) continue;
      end_slow();
      next_look_s = now_s() + look_every_s;
    }
  }

  /// Takes one more call, unless there are too many.
  void await() {
    if (awaits_ || ends_ || open_ >= spec_.most_connections) return;
    awaits_ = true;
    auto call = std::make_unique<Call>(next_number_++);
    generic_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), call.get());
    calls_.emplace(call->number, std::move(call));
  }

  /// What comes after a call's operation, which has failed unless `ok`.
  void step(Call& call, bool ok) {
    if (call.state == Call::State::leaving) return end(call);
    if (call.state == Call::State::coming)
      return ok ? ask(call) : finish(call, {::grpc::StatusCode::INVALID_ARGUMENT, "no message"});
    awaits_ = false;
    if (!ok) {
      calls_.erase(call.number);
      return;
    }
    ++open_;
    await();
    begin(call);
  }

  void begin(Call& call) {
    call.began_s = now_s();
    call.method = find_method(call.context.method());
    if (call.method == nullptr)
      return finish(call, {::grpc::StatusCode::UNIMPLEMENTED,
                           fmt::format("there is no method {}", call.context.method())});
    if (!call.method->open) {
      HttpRequest door{.method = "GET", .path = "/v2", .headers = {}, .body = ""};
      add_token(call, door);
      auto begun = service_.begin(door);
      if (const auto* refusal = std::get_if<HttpResponse>(&begun))
        return finish(call, status_of(*refusal));
    }
    call.state = Call::State::coming;
    call.stream.Read(&call.message, &call);
  }

  static void add_token(const Call& call, HttpRequest& request) {
    const auto& metadata = call.context.client_metadata();
    const auto token = metadata.find("authorization");
    if (token != metadata.end())
      request.headers["authorization"] = {token->second.data(), token->second.size()};
  }

  void ask(Call& call) {
    call.state = Call::State::asked;
    call.bytes = call.message.Length();
    pending_bytes_ += call.bytes;
    if (ends_) return answer(call, ending());
    if (pending_bytes_ > spec_.most_pending_bytes)
      return answer(call, service_.error(503, "too many bytes wait at once"));
    try {
      HttpRequest request = call.method->ask(call.message, left_s(call.context));
      call.message.Clear();
      add_token(call, request);
      auto begun = service_.begin(request);
      if (const auto* refusal = std::get_if<HttpResponse>(&begun)) return answer(call, *refusal);
      call.visit = std::move(std::get<std::unique_ptr<HttpVisit>>(begun));
      call.visit->answer(std::move(request),
                         [outbox = outbox_, number = call.number](HttpResponse response) {
                           outbox->put(number, std::move(response));
                         });
    } catch (const RequestError& fault) {
      answer(call, service_.error(fault.status(), fault.what()));
    } catch (const std::exception& error) {
      fail(call, error);
    }
  }

  void answer(Call& call, const HttpResponse& response) {
    if (call.state != Call::State::asked) return;
    const ::grpc::Status status = status_of(response);
    if (!status.ok()) return finish(call, status);
    try {
      const ::grpc::ByteBuffer reply = call.method->reply(response);
      call.state = Call::State::leaving;
      call.stream.WriteAndFinish(reply, {}, ::grpc::Status::OK, &call);
    } catch (const std::exception& error) {
      fail(call, error);
    }
  }

  void fail(Call& call, const std::exception& error) {
    log::warn(fmt::format("{}: {}", call.context.method(), error.what()));
    finish(call, {::grpc::StatusCode::INTERNAL, "it failed"});
  }

  void finish(Call& call, const ::grpc::Status& status) {
    call.state = Call::State::leaving;
    call.stream.Finish(status, &call);
  }

  void end(Call& call) {
    pending_bytes_ -= call.bytes;
    calls_.erase(call.number);
    --open_;
    await();
  }

  void end_waiting() {
    for (const auto& [number, call] : calls_) answer(*call, ending());
  }

  /// Their messages have not come in time.
  void end_slow() {
    for (const auto& [number, call] : calls_)
      if (call->state == Call::State::coming && now_s() > call->began_s + spec_.body_s)
        call->context.TryCancel();
  }

  const HttpSpec spec_;
  HttpService& service_;
  int port_ = 0;
  char bell_ = 0;  // its address is the tag of the outbox's event
  std::atomic<bool> ends_{false};
  std::atomic<std::size_t> open_{0};
  ::grpc::AsyncGenericService generic_;
  std::unique_ptr<::grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<::grpc::Server> server_;
  std::shared_ptr<Outbox> outbox_;
  // Of the server's thread:
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls_;
  std::uint64_t next_number_ = 0;
  std::size_t pending_bytes_ = 0;
  bool awaits_ = false;  // one of the calls is awaited
  std::thread thread_;   // last: it uses the others
};

}  // namespace
}  // namespace grpc

void require_grpc() {}

std::unique_ptr<HttpServer> make_grpc_server(const HttpSpec& spec, HttpService& service) {
  return std::make_unique<grpc::GrpcServer>(spec, service);
}

}  // namespace lockstep
