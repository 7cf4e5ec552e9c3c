#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::grpc {

/// Takes connections for the library, and only `most_connections` at a time: the library would
/// take as many as the process may have descriptors. The library closes them and tells no one, so a
/// second descriptor of each shows when it has done so. When one more waits for a place, silent
/// ones give theirs, the longest silent first: those without a call after a second, others after
/// `silence_s`.
class Door {
 public:
  using Acceptor = ::grpc::experimental::ExternalConnectionAcceptor;
  /// Listens, and takes nothing before open(). Throws InputError naming the address when nothing
  /// can listen there.
  Door(const std::string& host, std::uint16_t port, std::size_t most_connections,
       unsigned silence_s);
  ~Door() { close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  std::uint16_t port() const;
  void open(std::unique_ptr<Acceptor> acceptor);
  void close();  ///< from now on it takes none
  /// Calls are computed for the client at this port, one more or less. On any thread. Two clients
  /// of one number share the count.
  void count_call(std::uint16_t client, int more);

 private:
  void work();
  void take_all();
  void make_place();
  unsigned patience_ms(std::uint16_t client) const;
  void listen(bool wanted);

  const std::size_t most_;
  const unsigned silence_s_;
  Descriptor listening_, events_;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<int, std::uint16_t> taken_;  ///< the second descriptors, and the clients' ports
  mutable std::mutex mutex_;            // of the calls
  std::map<std::uint16_t, int> calls_;  ///< by the client's port
  bool listens_ = false;
  std::atomic<bool> closed_{false};
  std::thread thread_;  // last: it uses the others
};

// The methods of the protocol's service, each as a request over HTTP and its response.

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
