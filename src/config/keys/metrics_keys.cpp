#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> metrics_keys() {
  return {
      key("metrics.tensorboard", &C::metrics, &C::Metrics::tensorboard,
          "write curves and the configuration for TensorBoard into the run's folder tensorboard/")
          .bookkeeping()
          .of_a_run(),
      key("metrics.textfile", &C::metrics, &C::Metrics::textfile,
          "write the run's state for Prometheus into this file, NAME.prom in the folder of "
          "node_exporter's textfile collector on rank 0's node")
          .bookkeeping()
          .of_a_run(),
      key("metrics.listen", &C::metrics, &C::Metrics::listen,
          "show the same at http://HOST:PORT/metrics on rank 0's node: PORT (on 127.0.0.1) or "
          "HOST:PORT, where anybody who reaches it may read")
          .bookkeeping()
          .of_a_run(),
  };
}

}  // namespace lockstep::config
