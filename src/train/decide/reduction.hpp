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
  comm::Communicator& flat;  ///< of the replicas
  comm::Control& control;
  const comm::Nodes& nodes;
  bool on_host = true;  ///< the ranks compute on the host
  const std::optional<ResumePoint>& resume;
};

struct AllReduce {
  config::AllReduceChoice choice = config::AllReduceChoice::flat;
  std::unique_ptr<comm::Communicator> two_level;  ///< null: ReductionSetting::flat
};

/// Decides what comm.all-reduce leaves open: two levels on the host where the nodes have them, else
/// flat. A run that began flat stays flat, on as many replicas, because its bits depend on it.
/// Throws InputError, on all ranks, where two levels are asked for and cannot be. Collective.
AllReduce choose_all_reduce(const config::Config::Comm& asked, const ReductionSetting& setting);

/// Decides comm.bucket-mb = 0 for `network`, which is what is trained: the size of the run that
/// resumes on as many replicas; on GPUs 25; on one node 1; else from the measured cost of
/// `communicator`'s all-reduces. Rank 0 logs it. Collective.
float choose_bucket_mb(const config::Config::Comm& asked, const ReductionSetting& setting,
                       comm::Communicator& communicator, const nn::Network& network);

}  // namespace lockstep::train
