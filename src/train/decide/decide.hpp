#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/recompute.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/train/decide/gpu_steps.hpp"
#include "lockstep/train/decide/other_memory.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_data.hpp"
#include "train/decisions.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {

/// What a start decides by.
struct StartSetting {
  const RunSpec& spec;
  backend::Backend& backend;
  comm::Communicator& communicator;  ///< of the replicas
  comm::Control& control;
  const std::optional<ResumePoint>& resume;
  const RunData& data;
};

/// Decides how steps run on GPUs. A start that resumes a run on GPUs in the same precision keeps
/// what its bits depend on. Rank 0 logs what was not asked for. The same on all ranks.
GpuSteps decide_gpu_steps(const StartSetting& setting);

struct Decided {
  Decisions decisions;
  /// Carries out the decision for sums over two levels; else null. StartSetting::communicator must
  /// outlive it.
  std::unique_ptr<comm::Communicator> two_level;
};

/// Decides, measures where that is needed, and logs what was not asked for. Throws InputError where
/// what was asked for cannot be. Call it when all but the parameters and the loader is there,
/// because it counts the memory of the processes. Collective.
Decided decide(const StartSetting& setting);

/// By which the stages of a network are equal.
nn::WorkSpec stage_work(const backend::ProgramSpec& program, const backend::Backend& backend);

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

/// Rows of the steps of a training: of all replicas, and how they are cut.
struct StepRows {
  std::uint64_t full = 0, last = 0;  ///< of a step, and of an epoch's last one
  int replicas = 1;
  std::size_t most = 0;  ///< of one replica in one micro-batch
};

/// Why one row is not enough to train batch norms of `network`: "batch norm layer4.0.bn1, ...";
/// empty where it is. Pure.
std::string why_not_one_row(const nn::Network& network);

/// Batch norm takes a mean and a deviation over all rows and pixels of a micro-batch. Throws
/// InputError, saying what would be right, where `trained`, the layers that learn, would have only
/// one value for them: its output is then the same for all images, no gradient passes it, and its
/// running variance fades to 0. Pure.
void require_norm_values(const nn::Network& trained, const StepRows& rows,
                         const config::Config& config);

/// A limit holds for the whole process: this tells the planner how much of it other things need,
/// the same for all ranks. It runs `programs` once, those that the run will have, and sees what the
/// process then has in memory. Call it when all but the parameters and the loader is there. Does
/// nothing without a limit, and for a GPU, whose memory holds nothing else of this process.
/// Collective.
void count_process(backend::Recompute& recompute, const nn::Network& network,
                   std::span<const backend::ProgramSpec> programs, backend::Backend& backend,
                   const OtherMemory& other, comm::Control& control);

/// How many copies of the state, `bytes` each, a limit leaves room for in addition to a step of
/// this plan; `most` at most, and where count_process() counts nothing.
std::size_t copies_within(const backend::Recompute& recompute, const backend::MemoryPlan& plan,
                          const nn::ArenaLayout& layout, std::size_t bytes, std::size_t most);

/// Decides winograd = auto: that of the checkpoint from which the run resumes in the same
/// precision; with `deterministic` everywhere; else what rank 0 has measured on this processor for
/// `program`, now or, if the file RunSpec::algorithm_cache has it, earlier. Where a CPU lacks it
/// nothing uses it; GPUs and other precisions leave it open, for it has no effect there. Throws
/// InputError where it would have none but was asked for, also for a list with a shape that the
/// network does not have. Collective; rank 0 logs the choice.
backend::Winograd choose_winograd(const StartSetting& setting, const nn::Network& network,
                                  const backend::ProgramSpec& program);

}  // namespace lockstep::train
