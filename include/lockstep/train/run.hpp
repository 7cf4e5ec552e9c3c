#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/train/config.hpp"

namespace lockstep::train {

enum class Outcome {
  finished,
  stopped  ///< by a signal or stop-after: a checkpoint was written, --resume auto goes on
};

struct RunSpec {
  Config config;                      ///< resolved
  std::function<void()> bind_worker;  ///< see data::LoaderSpec
  std::size_t spare_cores = 0;        ///< that no compute thread uses: room for loader threads
  std::string binding_report;         ///< JSON of all ranks, for the run's directory
  double started_s = 0;               ///< now_s() when the process began
};

/// One training from its configuration to its files: data, network, resume, the loop over epochs
/// and steps, validation, checkpoints, metrics. Every method is collective. Before train() nothing
/// is written, so a run that cannot begin leaves nothing behind.
class Run {
 public:
  /// Opens and checks everything that the run needs. Throws InputError as its parts do. The
  /// references must outlive the run.
  Run(RunSpec spec, Backend& backend, comm::Communicator& communicator, comm::Control& control);
  ~Run();
  Outcome train();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::train
