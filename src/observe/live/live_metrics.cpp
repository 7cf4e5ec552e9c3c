#include "lockstep/observe/live/live_metrics.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/background_writer.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/log.hpp"
#include "observe/live/prometheus.hpp"

namespace lockstep::observe {
namespace {

constexpr double textfile_every_s = 5;
// A scrape is one short request: connections that say nothing must not keep others waiting.
constexpr std::size_t most_connections = 256;
constexpr unsigned silence_s = 2;

HttpResponse page(const PrometheusText& metrics, const HttpRequest& request) {
  if (request.path != "/metrics") return {.status = 404, .body = "the metrics are at /metrics\n"};
  if (request.method != "GET" && request.method != "HEAD")
    return {.status = 405, .body = "GET\n", .headers = {{"Allow", "GET, HEAD"}}};
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics.text()};
}

}  // namespace

struct LiveMetrics::Impl {
  explicit Impl(Spec wanted) : spec(std::move(wanted)) {
    if (!spec.textfile.empty()) writer.emplace(spec.enter);
    if (spec.listen.empty()) return;
    HttpSpec where = parse_listen(spec.listen, "metrics.listen");
    where.most_connections = most_connections;
    where.silence_s = silence_s;
    try {
      server = make_http_server(
          where, [this](const HttpRequest& request) { return page(metrics, request); });
      log::info(fmt::format("metrics: http://{}:{}/metrics", where.host, server->port()));
    } catch (const InputError& error) {
      log::warn(fmt::format("metrics.listen: {}; training continues without", error.what()));
    }
  }

  /// One order at a time: a folder that does not answer costs nothing.
  void write_textfile() {
    if (!writer) return;
    try {
      writer->poll();
      if (writer->unfinished() > 0 || now_s() < next_s) return;
      next_s = now_s() + textfile_every_s;
      const auto text = std::make_shared<const std::string>(metrics.text());
      writer->add({.name = spec.textfile, .paths = {spec.textfile}, .bytes = [text] {
                     return std::string_view(*text);
                   }});
    } catch (const Error& error) {  // also of a full disk
      log::warn(fmt::format("metrics.textfile: {}; training continues without", error.what()));
      writer.reset();
    }
  }

  ~Impl() {
    if (!writer) return;
    writer.reset();
    std::error_code none;
    std::filesystem::remove(spec.textfile, none);
  }

  const Spec spec;
  PrometheusText metrics;
  double next_s = 0;  ///< when the file may be written again
  std::optional<BackgroundWriter> writer;
  std::unique_ptr<HttpServer> server;  // last: its thread reads the metrics
};

LiveMetrics::LiveMetrics(Spec spec) : impl_(std::make_unique<Impl>(std::move(spec))) {}
LiveMetrics::~LiveMetrics() = default;

void LiveMetrics::write(const Record& record) {
  impl_->metrics.write(record);
  impl_->write_textfile();
}

}  // namespace lockstep::observe
