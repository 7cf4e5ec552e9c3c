#include "lockstep/serve/service/serving.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/grpc.hpp"
#include "lockstep/base/log.hpp"
#include "serve/service/service.hpp"

namespace lockstep::serve {
namespace {

constexpr double turn_s = 0.05;  // after which what steers the service is asked again
constexpr double told_s = 0.5;   // in which clients that ask again learn that the server ends

/// A thread that ends late requests, and looks for models whose files have changed.
class Watch {
 public:
  Watch(Batcher& batcher, Repository& repository, const std::function<bool()>& reload)
      : thread_([this, &batcher, &repository, reload] {
          double next_look_s = now_s() + look_every_s;
          while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            batcher.end_late(now_s());
            const bool all = reload();
            if (!all && now_s() < next_look_s) continue;
            repository.look(all);
            next_look_s = now_s() + look_every_s;
          }
        }) {}
  ~Watch() {
    stop_ = true;
    thread_.join();
  }

 private:
  static constexpr double look_every_s = 1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

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

}  // namespace

bool serve_models(const ServeSpec& spec, const std::vector<ModelSource>& sources,
                  backend::Backend& backend, const ServeControl& control) {
  Readers readers(spec.readers, spec.bind_reader);
  Batcher batcher(spec.waiting_rows);
  Repository repository(spec, sources, backend, batcher);
  repository.load();
  Service service(spec, repository, batcher, readers);
  std::unique_ptr<HttpServer> http = make_http_server(spec.http, service);
  std::unique_ptr<HttpServer> grpc = make_second_server(spec, service);
  const auto open = [&] { return http->open_requests() + (grpc ? grpc->open_requests() : 0); };
  control.listening(*http, grpc.get());
  bool all_answered = false;
  {
    const Watch watch(batcher, repository, control.reload);
    while (!control.stop()) batcher.turn(turn_s);
    service.become_unready();
    log::info(
        fmt::format("stopping: not ready; takes requests for {} s, then answers those that "
                    "it has, for at most {} s",
                    spec.grace_s, spec.drain_s));
    work_until(batcher, spec.grace_s, [] { return false; });
    service.close();
    work_until(batcher, told_s, [] { return false; });
    all_answered = work_until(batcher, spec.drain_s, [&] { return open() == 0; });
  }
  if (!all_answered) log::warn(fmt::format("{} requests were not answered in time", open()));
  grpc.reset();
  http.reset();
  readers.stop();
  batcher.give_up();  // while the service is there
  return all_answered;
}

}  // namespace lockstep::serve
