#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/norm_span.hpp"
#include "lockstep/backend/tile_group.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/optim/average.hpp"
#include "lockstep/optim/rule.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "lockstep/train/decide/micro_batches.hpp"

namespace lockstep::train {

/// What a trainer does in every step. The same on all ranks.
struct TrainerSpec {
  nn::Network network;
  backend::ProgramSpec program;  ///< batch: rows of a full micro-batch
  optim::Formula formula;
  float weight_decay = 0;
  bool decay_norm_and_bias = true;
  float backbone_lr_factor = 1;  ///< of the learning rate of all layers but the last one
  float rest_lr_factor = 1;      ///< Muon: of the learning rate of all but its filters
  float clip_norm = 0;           ///< the largest norm of a step's gradients; 0: not limited
  optim::AverageSpec average;
  reduce::ExchangeKind exchange = reduce::ExchangeKind::exact;
  reduce::LocalSpec local = {};
  reduce::GossipSpec gossip = {};
  reduce::PowerSgdSpec power_sgd = {};
  reduce::MakeExchange make_exchange = reduce::make_exchange;  ///< tests have others
  std::size_t shards = 0;  ///< of a batch: each is a micro-batch; 0: `program` says how large
  std::size_t micro_batches = 1;  ///< of a step on each rank, at most; with shards not used
  std::size_t norm_ranks = 1;     ///< consecutive replicas that share batch norm's statistics
  std::size_t tiles = 1;          ///< consecutive ranks that share each image
  std::size_t bucket_bytes = 1 << 20;
  std::uint64_t seed = 1;  ///< of the initial weights
  /// Record the device's work of a step whose micro-batches are all full, and repeat it.
  bool graph = false;
};

class Pipeline;
struct StagePiece;
class StepLaps;

/// One rank's part of a step.
struct StepReport {
  backend::Metrics metrics;
  observe::StepTimes times;
  /// How long the device had no work of a step before this one. Empty when the host has read the
  /// step before this one: then it is not known.
  std::optional<double> idle_ms = std::nullopt;
  /// The state after the step, the same on all ranks; empty in a precision without loss scaling.
  /// skipped_in_a_row > 0: this step's gradients overflowed and nothing was updated.
  std::optional<backend::LossScale> loss_scale;
  /// The norm of the step's gradients before they were clipped; empty without clip_norm.
  std::optional<double> gradient_norm = std::nullopt;
  /// Of the step's update; empty for a rule without them, and in a step that was skipped.
  std::optional<optim::TrustRatios> trust = std::nullopt;
  bool skipped() const { return loss_scale && loss_scale->skipped_in_a_row > 0; }
};

/// This rank's part of the next step.
struct NextBatch {
  data::Batch batch;
  std::size_t global_rows = 0;
};

/// require_scaling() gives up after this many overflows in a row.
constexpr std::uint32_t most_skipped_steps = 50;

/// Runs synchronous training steps with the backend, the replicas and the optimizer's rule. A step
/// is a list of pieces (Pipeline::pieces()): of one rank, for each micro-batch, forward and
/// backward; of a stage, also what it takes from its neighbours and gives them. In the last
/// micro-batch it hands each
/// gradient slice to the exchange as soon as the slice is final, so that communication overlaps the
/// rest of backward. Then it waits for one bucket after the other and updates what the exchange
/// releases: all at once, with a loss scale or clip_norm. Last come the running statistics and the
/// average of all weights. launch() does not wait for a device that runs later than the host; what
/// the step has found is put aside on the device, and report() reads it. With `graph`, a full
/// micro-batch's work, from forward to the update, is recorded in the first steps and then repeated
/// by one call each; the bits are the same.
/// **Invariants:** all replicas call step() with the same global_rows and lr; afterwards their
/// weights are equal, bit for bit, once the exchange has settled them.
/// **Thread safety:** none; the main thread uses it.
class Trainer {
 public:
  /// Compiles the full micro-batch's program and fills the weights by seed. `replicas`: this rank's
  /// group of those that share each batch, which may be any ranks; with tiles, those of a replica
  /// follow each other. `pipeline`: of whose stage
  /// `spec.network` is; null: the network is whole. All of them must outlive the trainer. Throws
  /// InputError as Backend::require_fit() and backend::make_norm_span() do, and for `graph` as
  /// Device::make_repeater() does.
  Trainer(const TrainerSpec& spec, backend::Backend& backend, comm::Communicator& replicas,
          Pipeline* pipeline = nullptr);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Call it after loading a checkpoint: that many steps are done. The average depends on it, and
  /// LAMB's scale of its moments.
  void continue_after(std::uint64_t steps_done) { steps_done_ = steps_done; }

  /// Compiles all programs of a step of that many rows, where the first such step would. Throws
  /// InputError as a backend does, such as where a memory limit has no room for one.
  void prepare(std::size_t global_rows);

  /// Trains on one global batch; `batch` is this rank's part of it and may be empty. Once all work
  /// is queued, it calls `next`; if that returns a batch, it is copied to the device meanwhile and
  /// must be the one of the next step. The batch must stay alive until the step has ended.
  /// REQUIRES: at most Device::steps_ahead() steps before it have not ended.
  void launch(const data::Batch& batch, std::size_t global_rows, float lr,
              const std::function<std::optional<NextBatch>()>& next = {});
  /// Waits until at most `most` of the launched steps have not ended.
  void let_run(std::size_t most);
  /// The oldest launched step that was not reported yet. Waits until all launched ones have ended.
  /// REQUIRES: there is one.
  StepReport report();
  /// Throws InputError on all ranks when most_skipped_steps in a row have overflowed.
  static void require_scaling(const StepReport& report);
  /// One step to its end: launch(), report(), require_scaling(). REQUIRES: nothing is unreported.
  StepReport step(const data::Batch& batch, std::size_t global_rows, float lr,
                  const std::function<std::optional<NextBatch>()>& next = {});

  /// Compares all ranks' weights, momentum, average and second moments, as the exchange settles
  /// them. Throws Error "ranks diverged at step S", naming the ranks that differ from the most
  /// common state, and tensors that differ in norm.
  void audit(comm::Control& control, std::uint64_t step);

  backend::Parameters& parameters() { return *parameters_; }
  bool keeps_average() const { return spec_.average.kept(); }
  const nn::Network& network() const { return spec_.network; }
  const backend::ProgramSpec& program_spec() const { return spec_.program; }
  /// The memory of the full micro-batch's program. Smaller ones run in the same memory: a backend's
  /// programs share what they do not keep.
  backend::MemoryPlan memory() const { return programs_.at(spec_.program.batch)->memory(); }
  reduce::Exchange& exchange() { return *exchange_; }
  const reduce::Exchange& exchange() const { return *exchange_; }

 private:
  backend::Program& program_for(std::size_t rows);
  std::size_t sharers() const;     ///< of each batch: its shards, or the replicas
  comm::GridAxis replica() const;  ///< this rank's place among those with other rows
  std::vector<MicroBatch> plan(std::size_t global_rows) const;
  void run_turn(const data::Batch& batch, const std::vector<MicroBatch>& parts,
                std::span<const StagePiece> turn, optim::StepScalars scalars, bool ends);
  void run_backward(backend::Program& program, const StagePiece& piece, bool last);
  void run(const backend::Tape& tape, bool last);
  void end_lap(double observe::StepTimes::*time);
  void wait_meanwhile();
  void clip();
  std::optional<optim::TrustRatios> trust_of_stages() const;
  bool all_full(const std::vector<MicroBatch>& parts) const;
  void contribute_nothing(bool last);
  void put_aside();
  void enter_phase(comm::Phase phase);  ///< on the host now, on the device when it gets there
  void prefetch(const NextBatch& next);
  void judge_gradients();
  void reduce_and_update(const optim::StepScalars& scalars, std::size_t micro_batches);
  void read_reports();

  TrainerSpec spec_;
  backend::Backend& backend_;
  comm::Communicator& replicas_;
  std::unique_ptr<Pipeline> alone_;  ///< of a network that is whole
  Pipeline& pipeline_;
  std::unique_ptr<backend::NormSpan> norm_span_;  ///< null: each replica has its own statistics
  std::unique_ptr<backend::TileGroup> tiles_;     ///< null: each rank has whole images
  std::unique_ptr<backend::Parameters> parameters_;
  optim::UpdateRule rule_;
  std::uint64_t steps_done_ = 0;
  std::map<std::size_t, std::unique_ptr<backend::Program>> programs_;  ///< by rows
  std::set<backend::Program*> ran_;  ///< in this step: whose metrics are put aside
  /// A step whose figures are on the device.
  struct Launched {
    std::unique_ptr<device::Event> end;
    std::vector<backend::ReadFigures> figures;  ///< of its shards, or one of all micro-batches
    std::optional<optim::TrustRatios> trust;    ///< of all stages, where there are several
  };
  std::vector<backend::ReadFigures> figures_;  ///< of this step, so far
  std::deque<Launched> launched_;
  std::deque<StepReport> reports_;  ///< read, but not given out
  std::unique_ptr<reduce::Exchange> exchange_;
  std::unique_ptr<StepLaps> laps_;
  /// Of `graph`. Last: what it has recorded uses the others.
  std::unique_ptr<device::Repeater> repeater_;
};

}  // namespace lockstep::train
