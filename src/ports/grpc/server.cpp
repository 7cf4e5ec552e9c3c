#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/grpc.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "ports/grpc/call.hpp"

// One thread takes calls, their messages and their responses from the library's queue, as the
// server of HTTP does: a call that waits for its answer holds no thread. Before its message comes,
// a call is asked for the token. It counts when that is there. Calls whose message does not come,
// or whose client does not take the reply, end after a time, and the oldest when there are many.
namespace lockstep {
namespace grpc {
namespace {

constexpr double look_every_s = 1;
constexpr std::chrono::milliseconds to_leave{300};  // for the last replies, when the server ends
constexpr int idle_ms = 60'000;  // after which a connection without calls is closed
constexpr std::size_t most_of_the_library = std::size_t{1} << 30;  // for what is on its way
constexpr int most_streams = 128;       // calls of one connection at a time
constexpr double small_message_s = 10;  // for those of all methods but inferences

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
  GrpcServer(const HttpSpec& spec, HttpService& service)
      : spec_(spec),
        service_(service),
        door_(spec.host, spec.port, spec.most_connections, spec.silence_s) {
    gpr_set_log_function([](gpr_log_func_args*) {});  // all lines are log's
    ::grpc::ResourceQuota quota;
    quota.Resize(most_of_the_library);
    ::grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&generic_)
        .SetMaxReceiveMessageSize(at_most(spec.most_body_bytes))
        .SetMaxSendMessageSize(-1)
        .SetResourceQuota(quota)
        .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, most_streams)
        .AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, idle_ms)
        .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, at_most(spec.silence_s * 1000))
        // A small message can have a large content.
        .AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0)
        .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false)
        .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
    using Type = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    auto acceptor =
        builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials_of(spec));
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    require(server_ != nullptr, "gRPC: the library refuses to start");
    outbox_ = std::make_shared<Outbox>(*queue_, &bell_);
    thread_ = std::thread([this] { run(); });
    door_.open(std::move(acceptor));
  }

  /// The queue is closed by its thread, when the last call has ended: the library ends the process
  /// when anything begins on a closed one.
  ~GrpcServer() override {
    door_.close();
    ends_ = true;
    outbox_->wake();
    server_->Shutdown(std::chrono::system_clock::now() + to_leave);
    shut_ = true;
    outbox_->wake();
    thread_.join();
  }
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  std::uint16_t port() const override { return door_.port(); }
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
      const Event* event = static_cast<Event*>(tag);
      if (came && event != &bell_) event->done ? note_end(*event->call) : step(*event->call, ok);
      for (auto& [number, response] : outbox_->take(came && event == &bell_))
        if (const auto call = calls_.find(number); call != calls_.end())
          answer(*call->second, response);
      if (ends_) end_waiting();
      if (shut_ && calls_.empty() && !std::exchange(closed_, true)) {
        outbox_->close();
        queue_->Shutdown();
      }
      if (now_s() < next_look_s) continue;
      end_slow();
      next_look_s = now_s() + look_every_s;
    }
  }

  /// Takes one more call, unless there are too many.
  void await() {
    if (awaits_ || ends_ || asked_ >= spec_.most_connections) return;
    awaits_ = true;
    auto call = std::make_unique<Call>(next_number_++, spec_.budget);
    call->context.AsyncNotifyWhenDone(&call->done);
    generic_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(),
                         &call->operation);
    calls_.emplace(call->number, std::move(call));
  }

  /// What comes after a call's operation, which has failed unless `ok`.
  void step(Call& call, bool ok) {
    slow_.erase(call.place);
    if (call.state == Call::State::leaving) {
      call.is_left = true;
      return end(call);
    }
    if (call.state == Call::State::coming)
      return ok ? ask(call) : finish(call, {::grpc::StatusCode::INVALID_ARGUMENT, "no message"});
    awaits_ = false;
    if (!ok) {
      calls_.erase(call.number);
      return;
    }
    begin(call);
    await();
  }

  void begin(Call& call) {
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
    const double patience_s = call.method->large ? spec_.body_s : small_message_s;
    call.until_s = now_s() + std::min(patience_s, spec_.body_s);
    call.stream.Read(&call.message, &call.operation);
    wait_for_client(call);
  }

  void wait_for_client(Call& call) {
    call.place = next_place_++;
    slow_.emplace(call.place, &call);
    if (slow_.size() <= spec_.most_connections) return;
    slow_.begin()->second->context.TryCancel();
    slow_.erase(slow_.begin());
  }

  static void add_token(const Call& call, HttpRequest& request) {
    const auto& metadata = call.context.client_metadata();
    const auto token = metadata.find("authorization");
    if (token != metadata.end())
      request.headers["authorization"] = {token->second.data(), token->second.size()};
  }

  void ask(Call& call) {
    call.state = Call::State::asked;
    call.counted = true;
    const std::string peer = call.context.peer();  // its address and port
    const auto port = whole_number<int>(peer.substr(peer.rfind(':') + 1));
    call.client = static_cast<std::uint16_t>(port.value_or(0));
    count_asked(call, 1);
    ++open_;
    if (ends_) return answer(call, ending());
    if (!call.share.grow(call.message.Length()))
      return answer(call, service_.error(503, no_bytes_left));
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

  void count_asked(const Call& call, int more) {
    asked_ += static_cast<std::size_t>(more);
    door_.count_call(call.client, more);
  }

  void answer(Call& call, const HttpResponse& response) {
    if (call.state != Call::State::asked) return;
    const ::grpc::Status status = status_of(response);
    if (!status.ok()) return finish(call, status);
    try {
      if (!call.share.grow(response.body.size()))
        return finish(call, {::grpc::StatusCode::UNAVAILABLE, no_bytes_left});
      const ::grpc::ByteBuffer reply = call.method->reply(response);
      leave(call, reply.Length());
      call.stream.WriteAndFinish(reply, {}, ::grpc::Status::OK, &call.operation);
    } catch (const std::exception& error) {
      fail(call, error);
    }
  }

  void fail(Call& call, const std::exception& error) {
    log::warn(fmt::format("{}: {}", call.context.method(), error.what()));
    finish(call, {::grpc::StatusCode::INTERNAL, "it failed"});
  }

  void finish(Call& call, const ::grpc::Status& status) {
    leave(call, 0);
    call.stream.Finish(status, &call.operation);
  }

  void leave(Call& call, std::size_t bytes) {
    if (call.state == Call::State::asked) count_asked(call, -1);
    call.state = Call::State::leaving;
    wait_for_client(call);
    await();
    call.until_s = now_s() + spec_.silence_s +
                   static_cast<double>(bytes) / static_cast<double>(spec_.body_bytes_per_s);
  }

  /// It has its reply, or its client has gone: then no one waits for that.
  void note_end(Call& call) {
    call.has_ended = true;
    if (call.state == Call::State::asked) {
      call.visit.reset();
      finish(call, ::grpc::Status::CANCELLED);
    }
    end(call);
  }

  void end(Call& call) {
    if (!call.has_ended || !call.is_left) return;
    if (call.counted) --open_;
    calls_.erase(call.number);
    await();
  }

  void end_waiting() {
    for (const auto& [number, call] : calls_)
      if (call->state == Call::State::asked) answer(*call, ending());
  }

  /// Their messages have not come, or their clients have not taken their replies, in time.
  void end_slow() {
    for (const auto& [number, call] : calls_)
      if ((call->state == Call::State::coming || call->state == Call::State::leaving) &&
          now_s() > call->until_s)
        call->context.TryCancel();
  }

  const HttpSpec spec_;
  HttpService& service_;
  Door door_;
  Event bell_;  // of the outbox
  std::atomic<bool> ends_{false}, shut_{false};
  std::atomic<std::size_t> open_{0};
  ::grpc::AsyncGenericService generic_;
  std::unique_ptr<::grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<::grpc::Server> server_;
  std::shared_ptr<Outbox> outbox_;
  // Of the server's thread:
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls_;
  std::uint64_t next_number_ = 0, next_place_ = 1;
  std::map<std::uint64_t, Call*> slow_;  // that wait for their clients; the first is the oldest
  std::size_t asked_ = 0;                // that wait for the service
  bool awaits_ = false;                  // one of the calls is awaited
  bool closed_ = false;                  // the queue
  std::thread thread_;                   // last: it uses the others
};

}  // namespace
}  // namespace grpc

void require_grpc() {}

std::unique_ptr<HttpServer> make_grpc_server(const HttpSpec& spec, HttpService& service) {
  return std::make_unique<grpc::GrpcServer>(spec, service);
}

}  // namespace lockstep
