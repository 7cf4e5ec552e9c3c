#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/cli/run_options.hpp"
#include "lockstep/backend/pace.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "lockstep/study/machine/machine.hpp"
#include "lockstep/study/simulate/timeline.hpp"

namespace lockstep::app {

/// Of gradients, rank 2, on one core with AVX2, as build/bench/vectors measures it.
constexpr double usual_power_sgd_gb_s = 1.5;

/// A training, and the machine that it would run on.
struct SimulateOptions {
  RunOptions run;
  std::string machine, tape, comm, hwloc, json;
  std::vector<std::string> ranks;
  std::size_t per_node = 0;
  double power_sgd_gb_s = usual_power_sgd_gb_s, efficiency = 0.5;
  bool buckets = false;
  std::set<std::string> answered = {};  ///< keys whose effect the caller counts
};

/// The options of both commands that ask about a machine: which it is, which is returned, and what
/// was measured.
Argument add_machine_options(Arguments app, SimulateOptions& options);

/// What the training's rows are like: those of its data, where that is named.
data::DataSetInfo rows_of_training(const config::Config& training);

/// What is simulated: the machine, and the training where it has nothing else to say.
struct Simulation {
  /// Throws InputError naming the file or the options that do not fit together. Without a machine:
  /// study::ideal_machine().
  explicit Simulation(const SimulateOptions& options);

  study::MachineProfile machine;
  config::Config training;  ///< the machine's model, precision and buckets, if not given
  nn::Network network;
  backend::Pace pace;
  std::optional<study::CommFigures> measured;
  std::size_t per_node = 1;
  double bucket_mb = 0;

  /// The training on that many ranks. Throws InputError where it could not run on them.
  config::Config on(std::size_t world) const;
  /// A step of `rows` rows a rank.
  study::StepTimeline step(std::size_t world, std::size_t rows, double buckets_mb) const;
  /// What a sum of `bytes` bytes of gradients costs.
  study::ReduceCost sum_cost(const study::Layout& layout, double bytes) const;
  /// Of usual sizes.
  double best_bucket_mb(std::size_t world, std::size_t rows) const;

 private:
  void check_exchange(const std::string& comm) const;
  void check_norms(const std::string& comm) const;
  double gossip_exposed_ms(const study::Layout& layout, std::size_t numbers,
                           double compute_ms) const;

  reduce::ExchangeKind exchange_ = reduce::ExchangeKind::exact;
  double wire_share_ = 1;     ///< of the bytes in fp32
  double sums_ = 1;           ///< that follow each other for a bucket
  double compress_gb_s_ = 0;  ///< what makes the bytes fewer; 0: takes no time
};

}  // namespace lockstep::app
