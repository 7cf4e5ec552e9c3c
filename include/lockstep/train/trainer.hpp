#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/reduce/reducer.hpp"
#include "lockstep/train/micro_batches.hpp"

namespace lockstep::train {

/// What a trainer does in every step. The same on all ranks.
struct TrainerSpec {
  nn::Network network;
  backend::ProgramSpec program;  ///< batch: rows of a full micro-batch
  float momentum = 0.9f;
  bool nesterov = false;
  float weight_decay = 0;
  bool decay_norm_and_bias = true;
  std::size_t bucket_bytes = 1 << 20;
  std::uint64_t seed = 1;  ///< of the initial weights
};

/// One rank's part of a step.
struct StepReport {
  backend::Metrics metrics;
  observe::StepTimes times;
  /// After the step, the same on all ranks; only in a precision that has one. skipped_in_a_row > 0:
  /// this step's gradients overflowed and nothing was updated.
  std::optional<backend::LossScale> loss_scale;
  bool skipped() const { return loss_scale && loss_scale->skipped_in_a_row > 0; }
};

/// This rank's part of the step after this one.
struct NextBatch {
  data::Batch batch;
  std::size_t global_rows = 0;
};

/// Overflows in a row after which a step() gives up.
constexpr std::uint32_t most_skipped_steps = 50;

/// Puts one synchronous step together from what the backend, the communicator and the optimizer's
/// rule offer. The tape of a step: for each micro-batch load, forward, backward; in the last one
/// each gradient slice is handed to the reducer as soon as it is final, so that reductions run
/// beside the rest of backward; then bucket by bucket wait and update, or, with a loss scale, all
/// waits, one look at all gradients and one update; then the running statistics. Until its end a
/// step waits for the device nowhere. All ranks call step() with the same global_rows and lr;
/// afterwards their weights are equal, bit for bit.
class Trainer {
 public:
  /// Compiles the full micro-batch's program and fills the weights by seed. The references must
  /// outlive the trainer. Throws InputError as Backend::require_fit() does.
  Trainer(const TrainerSpec& spec, backend::Backend& backend, comm::Communicator& communicator);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains on one global batch, of which `batch` is this rank's part; it may be empty. `next` is
  /// asked once all work is under way; a batch that it has goes to the device meanwhile, and must
  /// be the next step's. Throws InputError on all ranks when most_skipped_steps have overflowed one
  /// after the other.
  StepReport step(const data::Batch& batch, std::size_t global_rows, float lr,
                  const std::function<std::optional<NextBatch>()>& next = {});

  /// Compares all ranks' weights and momentum. Throws Error "ranks diverged at step S", naming the
  /// ranks that differ from the most common state.
  void audit(comm::Control& control, std::uint64_t step) const;

  backend::Parameters& parameters() { return *parameters_; }
  const nn::Network& network() const { return spec_.network; }
  const backend::ProgramSpec& program_spec() const { return spec_.program; }
  /// Of the full micro-batch's program. Smaller ones run in the same memory: a backend's programs
  /// share what they do not keep.
  backend::MemoryPlan memory() const { return programs_.at(spec_.program.batch)->memory(); }
  std::size_t buckets() const { return reducer_->buckets().size(); }

 private:
  backend::Program& program_for(std::size_t rows);
  void run_micro_batch(const data::Batch& batch, const MicroBatch& part, optim::StepScalars scalars,
                       bool first, bool last);
  void contribute_nothing();
  void enter_phase(comm::Phase phase);  ///< here, and on the device when it comes there
  void prefetch(const NextBatch& next);
  void reduce_and_update(const optim::StepScalars& scalars, std::size_t micro_batches);
  /// The device time since the last mark is a lap, which report() adds to `time`.
  void end_lap(double observe::StepTimes::*time);
  StepReport report();

  TrainerSpec spec_;
  backend::Backend& backend_;
  comm::Communicator& communicator_;
  std::unique_ptr<backend::Parameters> parameters_;
  optim::UpdateRule rule_;
  std::map<std::size_t, std::unique_ptr<backend::Program>> programs_;  ///< by rows
  std::unique_ptr<reduce::BucketReducer> reducer_;
  std::unique_ptr<device::Timeline> timeline_;
  std::vector<double observe::StepTimes::*>
      laps_;  ///< of this step: the time that each is added to
};

}  // namespace lockstep::train
