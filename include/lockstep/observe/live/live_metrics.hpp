#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/observe/metrics.hpp"

namespace lockstep::observe {

/// Shows the run's present state to Prometheus while it trains: as a page that a server asks for,
/// and as a file in the folder of node_exporter's textfile collector. The file is new at most every
/// five seconds; it is removed when the run ends, because the collector would show it for ever.
/// What fails is named in one warning and then left out; training continues.
/// **Thread safety:** as every sink.
class LiveMetrics final : public Sink {
 public:
  struct Spec {
    std::string textfile;         ///< a path that ends in .prom; empty: none
    std::string listen;           ///< as parse_listen() takes it; empty: nowhere
    std::function<void()> enter;  ///< called first on the thread that writes the file
  };
  /// Throws InputError when `listen` cannot be parsed.
  explicit LiveMetrics(Spec spec);
  ~LiveMetrics() override;
  void write(const Record& record) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::observe
