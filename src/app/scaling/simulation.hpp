#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/pace.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "lockstep/study/machine/machine.hpp"
#include "lockstep/study/simulate/timeline.hpp"

namespace lockstep::app {

/// Of gradients, rank 2, on one core with AVX2, as build/bench/vectors measures it.
constexpr double usual_power_sgd_gb_s = 1.5;

struct SimulateOptions {
  std::string machine, model, precision, tape, comm, wire = "fp32", hwloc, json;
  std::vector<std::string> ranks;
  std::size_t batch = 0, batch_per_rank = 0, image = 0, classes = 0, per_node = 0;
  std::size_t sync_every = 1, power_sgd = 0, norm_ranks = 1;
  double power_sgd_gb_s = usual_power_sgd_gb_s;
  double bucket_mb = 0, efficiency = 0.5;
  bool gossip = false, buckets = false;
  std::size_t gossip_late = 1;
};

/// What is simulated: the machine with what the options say instead.
struct Simulation {
  /// Throws InputError naming the file or the options that do not fit together.
  explicit Simulation(const SimulateOptions& options);

  study::MachineProfile machine;
  nn::Network network;
  backend::Precision precision = backend::Precision::fp32;
  backend::Pace pace;
  std::optional<study::CommFigures> measured;
  std::size_t per_node = 1;
  double bucket_mb = 0;
  reduce::ExchangeKind wire = reduce::ExchangeKind::exact;
  double wire_share = 1;       ///< of the bytes in fp32
  double sums = 1;             ///< that follow each other for a bucket
  double compress_gb_s = 0;    ///< what makes the bytes fewer; 0: takes no time
  std::size_t sync_every = 1;  ///< steps; nodes agree in each with 1
  std::size_t norm_ranks = 1;  ///< that share batch norm's statistics
  /// Ranks sum nothing and send their weights, which are added after this many steps.
  std::optional<std::size_t> gossip_late;

  /// A step of `rows` rows a rank.
  study::StepTimeline step(std::size_t world, std::size_t rows, double buckets_mb) const;
  /// Of usual sizes.
  double best_bucket_mb(std::size_t world, std::size_t rows) const;

 private:
  void set_power_sgd(const SimulateOptions& options);
  void check_exchange(const SimulateOptions& options) const;
  void check_norms(const std::string& comm) const;
  double gossip_exposed_ms(const study::Layout& layout, std::size_t numbers,
                           double compute_ms) const;
  study::ReduceCost sum_cost(const study::Layout& layout, double bytes) const;
};

}  // namespace lockstep::app
