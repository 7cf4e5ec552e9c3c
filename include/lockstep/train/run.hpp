#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "lockstep/observe/trace/clock_offset.hpp"
#include "lockstep/reduce/exchange.hpp"

namespace lockstep::train {

enum class Outcome {
  finished,
  stopped  ///< by a signal, stop-after or the end of the allocation, with a checkpoint to resume
           ///< from
};

/// What the scheduler says about this process. Only that of rank 0 counts.
struct Allocation {
  std::string host;             ///< of this process
  std::string job;              ///< number of the Slurm job; empty outside one
  int restarts = 0;             ///< how often the scheduler has started that job again
  std::optional<double> end_s;  ///< on the clock of now_s(): when every process is killed
  /// Between mpirun's SIGTERM and its SIGKILL; empty under other launchers.
  std::optional<double> patience_s = std::nullopt;
};

struct RunSpec {
  config::Config config;              ///< resolved
  std::function<void()> bind_worker;  ///< see data::LoaderSpec
  std::size_t spare_cores = 0;        ///< cores without a compute thread: room for loader threads
  /// Describes the binding of all ranks as JSON for the run's directory, including where the pages
  /// of this rank's loader are; complete on rank 0. Collective: called before the first step
  /// (without a loader) and after it.
  std::function<std::string(const std::vector<std::span<const std::byte>>& loader)> binding_report;
  std::string preflight;  ///< its findings, as JSON for the run's directory; empty: not asked for
  /// A file of this user, for choices that were measured on this machine; empty: keep none.
  std::string algorithm_cache;
  std::string command;   ///< the command line, for the records
  double started_s = 0;  ///< now_s() when the process began
  bool dry_run = false;  ///< only say what the run would be; it writes nothing
  /// What its rows are like, for what measures steps without a data set; `rows` of them are one
  /// epoch. A training has none.
  std::optional<data::DataSetInfo> synthetic = std::nullopt;
  Allocation allocation;
  comm::Grid grid;             ///< this rank's place; of all ranks
  comm::Nodes nodes;           ///< of all ranks
  cluster::CpuSet cores;       ///< of this rank, each by one of its processors; empty: unknown
  std::string gpu_pci_bus_id;  ///< of this rank; empty without one
  std::filesystem::path machine_root = "/";  ///< precedes /sys, where energy is read
  liveness::Heartbeat* heartbeat = nullptr;  ///< leaves its post-mortem in the run's directory
  reduce::MakeExchange make_exchange = reduce::make_exchange;  ///< tests have others
  observe::TraceClock trace_clock = observe::steady_clock_us;  ///< tests have others
};

/// Judges a training as run_training() does before it writes, for what needs no device and no other
/// rank: its data, network, weights and folders. `shows`: whether the file or folder of this name
/// counts; nothing is read of others. Writes nothing. Throws InputError as run_training() does.
/// `config`: resolved for that many ranks.
void check_run(config::Config config, int ranks,
               const std::function<bool(const std::string& path)>& shows);
/// The same for each file that `config` names, alone: where the other keys are not known.
void check_inputs(const config::Config& config,
                  const std::function<bool(const std::string& path)>& shows);

/// Runs one training from its configuration to its files: data, network, resume, the loop over
/// epochs and steps, validation, checkpoints, metrics. Collective. It opens and checks everything
/// before it writes anything, so a run that cannot begin leaves no files. Throws InputError
/// as its parts do, and Error when ranks diverge or a newer start of the run has begun.
Outcome run_training(const RunSpec& spec, backend::Backend& backend,
                     comm::Communicator& communicator, comm::Control& control);

}  // namespace lockstep::train
