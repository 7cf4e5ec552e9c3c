#pragma once

#include <memory>
#include <optional>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/nn/network.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {

/// What a run's all-reduces may go through.
struct ReductionSetting {
  comm::Communicator& flat;
  comm::Control& control;
  const comm::Nodes& nodes;
  bool on_host = true;  ///< the ranks compute on the host
  const std::optional<ResumePoint>& resume;
};

/// Decides what comm.all-reduce leaves open and writes the decision into `config`: two levels on
/// the host where the nodes have them, else flat. A run that began flat stays flat, on as many
/// ranks, because its bits depend on it. Returns the two-level communicator, or null. Throws
/// InputError, on all ranks, where the configuration asks for two levels that cannot be.
/// Collective.
std::unique_ptr<comm::Communicator> choose_all_reduce(config::Config& config,
                                                      const ReductionSetting& setting);

/// Decides comm.bucket-mb = 0 and writes the decision into `config`: the size of the run that
/// resumes on as many ranks; on GPUs 25; on one node 1; else from the measured cost of
/// `communicator`'s all-reduces. Rank 0 logs it. Collective.
void choose_buckets(config::Config& config, const ReductionSetting& setting,
                    comm::Communicator& communicator, const nn::Network& network);

}  // namespace lockstep::train
