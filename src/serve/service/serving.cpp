#include "lockstep/serve/service/serving.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/grpc.hpp"
#include "lockstep/base/log.hpp"
#include "serve/service/service.hpp"

namespace lockstep::serve {
namespace {

constexpr double turn_s = 0.05;  // after which what steers the service is asked again
constexpr double told_s = 0.5;   // in which clients that ask again learn that the server ends
constexpr double leave_s = 1;    // for what the threads do at the end

/// A thread that does the same again and again.
class Repeated {
 public:
  Repeated(std::chrono::milliseconds pause, std::function<void()> work)
      : work_(std::move(work)), thread_([this, pause] {
          while (!stop_) {
            std::this_thread::sleep_for(pause);
            work_();
          }
          ended_ = true;
        }) {}
  ~Repeated() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  /// From now on it does nothing more; whether it has ended by then.
  bool stop(double until_s) {
    stop_ = true;
    while (!ended_ && now_s() < until_s) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ended_;
  }

 private:
  const std::function<void()> work_;
  std::atomic<bool> stop_{false}, ended_{false};
  std::thread thread_;  // last: it uses the others
};

/// Looks for models whose files have changed. Reading them may take long, on some file systems for
/// ever.
std::function<void()> look_for_models(Repository& repository, const std::function<bool()>& reload) {
  constexpr double look_every_s = 1;
  return [&repository, reload, next_look_s = now_s() + look_every_s]() mutable {
    const bool all = reload();
    if (!all && now_s() < next_look_s) return;
    repository.look(all);
    next_look_s = now_s() + look_every_s;
  };
}

/// Next to the server of HTTP, with its limits.
std::unique_ptr<HttpServer> make_second_server(const ServeSpec& spec, HttpService& service) {
  if (!spec.grpc_port) return nullptr;
  HttpSpec grpc = spec.http;
  grpc.port = *spec.grpc_port;
  grpc.socket.clear();
  return make_grpc_server(grpc, service);
}

/// Computes until `done`, or for this long; returns whether it is done.
bool work_until(Batcher& batcher, double longest_s, const std::function<bool()>& done) {
  const double until_s = now_s() + longest_s;
  while (!done() && now_s() < until_s) batcher.turn(turn_s);
  return done();
}

/// What works on requests ends before the service that it works for, also when a port is taken.
struct Ending {
  Readers& readers;
  Batcher& batcher;
  ~Ending() {
    readers.stop(1e9);
    batcher.give_up();
  }
};

/// Not ready, then refusing, then answering what is there. Returns how many requests got 503 at the
/// end of that, or have not got their answers by then.
std::size_t drain(Service& service, Batcher& batcher, const ServeSpec& spec,
                  const std::function<std::size_t()>& open) {
  service.become_unready();
  log::info(
      fmt::format("stopping: not ready; takes requests for {} s, then answers those that "
                  "it has, for at most {} s",
                  spec.grace_s, spec.drain_s));
  work_until(batcher, spec.grace_s, [] { return false; });
  service.close();
  work_until(batcher, told_s, [] { return false; });
  const auto done = [&] { return open() == 0; };
  if (work_until(batcher, spec.drain_s, done)) return 0;
  const std::size_t refused = service.give_up();
  work_until(batcher, told_s, done);
  return std::max(refused, open());
}

}  // namespace

bool serve_models(const ServeSpec& spec, const std::vector<ModelSource>& sources,
                  backend::Backend& backend, const ServeControl& control) {
  Batcher batcher(spec.waiting_rows);
  Repository repository(spec, sources, backend, batcher);
  repository.load();
  Readers readers(spec.readers, spec.bind_reader);
  Service service(spec, repository, batcher, readers);
  const Ending ending{readers, batcher};
  std::unique_ptr<HttpServer> grpc = make_second_server(spec, service);
  std::unique_ptr<HttpServer> http = make_http_server(spec.http, service);
  const auto open = [&] { return http->open_requests() + (grpc ? grpc->open_requests() : 0); };
  Repeated timer(std::chrono::milliseconds(20), [&] {
    batcher.end_late(now_s());
    service.end_late(now_s());
    http->end_gone();
  });
  Repeated look(std::chrono::milliseconds(20), look_for_models(repository, control.reload));
  control.listening(*http, grpc.get());
  while (!control.stop()) batcher.turn(turn_s);
  const std::size_t left = drain(service, batcher, spec, open);
  if (left > 0)
    log::warn(fmt::format("{} requests were not computed within --drain-s, and refused", left));
  const double until_s = now_s() + leave_s;
  if (!timer.stop(until_s)) control.leave();
  grpc.reset();
  http.reset();
  const bool idle = readers.stop(until_s - now_s()) && look.stop(until_s);
  if (!idle) control.leave();
  return left == 0;
}

}  // namespace lockstep::serve
