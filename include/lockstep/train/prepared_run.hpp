#pragma once

#include <memory>
#include <optional>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

class Pipeline;
struct Decisions;
struct ResumePoint;
struct Whole;

/// All that a training computes with, decided and opened, before it has a trainer or files: so what
/// measures a training has the same rows, programs and communicator as the training itself.
/// **Thread safety:** none; the main thread uses it.
class PreparedRun {
 public:
  /// Opens the data and decides as a start does that resumes from `resume`. Throws InputError as
  /// the parts do. Collective. The references must outlive this. `communicator`: of all ranks.
  PreparedRun(const RunSpec& spec, backend::Backend& backend, comm::Communicator& communicator,
              comm::Control& control, const std::optional<ResumePoint>& resume);
  /// The same for a start from the beginning.
  PreparedRun(const RunSpec& spec, backend::Backend& backend, comm::Communicator& communicator,
              comm::Control& control);
  ~PreparedRun();

  const RunSpec& spec() const { return spec_; }
  RunData& data() { return data_; }
  const Decisions& decisions() const { return *decisions_; }
  const config::Config& config() const { return config_; }  ///< with the decisions
  backend::Backend& backend() { return backend_; }
  /// Of the replicas of this rank's stage.
  comm::Communicator& reducing() { return two_level_ ? *two_level_ : replicas(); }
  /// Its network is this rank's stage.
  const TrainerSpec& trainer_spec() const { return trainer_spec_; }
  Pipeline& pipeline() { return *pipeline_; }
  const Whole& whole() const { return *whole_; }

 private:
  void decide_start(comm::Control& control, const std::optional<ResumePoint>& resume);
  comm::Communicator& replicas() { return of_stage_ ? *of_stage_ : communicator_; }

  const RunSpec& spec_;
  backend::Backend& backend_;
  comm::Communicator& communicator_;
  std::unique_ptr<comm::Communicator> of_stage_;  ///< null: all ranks are replicas
  RunData data_;
  std::unique_ptr<Decisions> decisions_;
  std::unique_ptr<comm::Communicator> two_level_;
  config::Config config_;
  TrainerSpec trainer_spec_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Whole> whole_;
};

}  // namespace lockstep::train
