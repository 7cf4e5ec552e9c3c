#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/http.hpp"

// The methods of the protocol's service, each as a request over HTTP and its response.
namespace lockstep::grpc {

struct Method {
  bool open = false;   ///< also for those without a token
  bool large = false;  ///< its messages may be, so they may take their time
  /// The request that a message is. `left_s`: until the call's deadline. Throws RequestError.
  std::function<HttpRequest(::grpc::ByteBuffer& message, std::optional<double> left_s)> ask;
  /// The reply that a response without an error is.
  std::function<::grpc::ByteBuffer(const HttpResponse& response)> reply;
};

/// By its path, "/inference.GRPCInferenceService/ModelInfer"; null where there is none.
const Method* find_method(const std::string& path);

struct Call;

/// What the queue's events are about: an operation of a call, that a call has ended, also because
/// its client has gone, or (without a call) responses.
struct Event {
  Call* call = nullptr;
  bool done = false;
};

/// One call. It has at most one operation on its way.
struct Call {
  enum class State {
    awaited,  ///< no client has it yet
    coming,   ///< its message
    asked,    ///< the service has it
    leaving   ///< its reply
  };
  Call(std::uint64_t number_, const std::shared_ptr<ByteBudget>& budget)
      : number(number_), share(budget) {}
  const std::uint64_t number;
  Event operation{this, false}, done{this, true};
  bool has_ended = false, is_left = false;  ///< its events for that have come: `done`, `operation`
  State state = State::awaited;
  ::grpc::GenericServerContext context;
  ::grpc::GenericServerAsyncReaderWriter stream{&context};
  ::grpc::ByteBuffer message;
  const Method* method = nullptr;
  std::uint64_t place = 0;   ///< among those that wait for their clients; 0: none
  double until_s = 0;        ///< for its message, and then for its reply; a time of now_s()
  bool counted = false;      ///< it is one of the open requests
  std::uint16_t client = 0;  ///< the port of its client, once it is asked
  ByteBudget::Share share;   ///< of its message and its reply
  std::unique_ptr<HttpVisit> visit;
};

/// Responses on their way from the threads that have them to the server's. Those of one batch wake
/// that once. A visit may respond when its call and the server have ended.
/// **Thread safety:** all methods.
class Outbox {
 public:
  /// By their calls' numbers.
  using Responses = std::vector<std::pair<std::uint64_t, HttpResponse>>;
  /// `bell` is the queue's Event for responses.
  Outbox(::grpc::CompletionQueue& queue, void* bell) : queue_(queue), bell_(bell) {}

  void put(std::uint64_t call, HttpResponse response) {
    const std::scoped_lock lock(mutex_);
    responses_.emplace_back(call, std::move(response));
    ring();
  }
  /// Wakes the server's thread, as a response does.
  void wake() {
    const std::scoped_lock lock(mutex_);
    ring();
  }
  /// On the server's thread; `rung`: after the bell's event.
  Responses take(bool rung) {
    const std::scoped_lock lock(mutex_);
    if (rung) rung_ = false;
    return std::exchange(responses_, {});
  }
  /// From now on the queue gets no events.
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }

 private:
  void ring() {
    if (closed_ || std::exchange(rung_, true)) return;
    // A time that has passed: the present one would be rounded up to the next millisecond.
    alarm_.Set(&queue_, gpr_time_0(GPR_CLOCK_MONOTONIC), bell_);
  }

  ::grpc::CompletionQueue& queue_;
  void* const bell_;
  std::mutex mutex_;
  Responses responses_;
  bool rung_ = false, closed_ = false;
  ::grpc::Alarm alarm_;
};

}  // namespace lockstep::grpc
