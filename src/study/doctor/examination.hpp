#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"
#include "lockstep/train/trainer.hpp"
#include "study/doctor/machine_state.hpp"

namespace lockstep::study {

/// One rank's part of a batch that stays in memory, filled from rows that a loader brought.
struct ResidentBatch {
  /// `outputs`: of a row's wanted ones; `rows`: of this rank.
  ResidentBatch(const data::Batch& sample, std::size_t row_bytes, std::size_t outputs,
                std::size_t global_rows, std::size_t rows, device::Device& device);
  device::PinnedBuffer images;
  std::vector<data::Target> targets;
  std::vector<float> wanted;
  data::Batch batch;
  std::size_t global_rows = 0;
};

/// Sums only the first number of each all-reduce, at the same places of a step: the ranks wait for
/// each other as they do, and the network has nothing to carry.
class SmallSums final : public comm::SilentCommunicator {
 public:
  /// `whole` must stay alive.
  explicit SmallSums(comm::Communicator& whole)
      : SilentCommunicator(whole.rank(), whole.world(), whole.network(), whole.activity),
        whole_(whole) {}
  void begin_step(std::uint64_t step) override { whole_.begin_step(step); }
  void all_reduce(comm::Elements data, comm::Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    if (data.count > 0) whole_.all_reduce(data.part(0, 1), reduction, name, stream);
  }
  void progress() override { whole_.progress(); }

 private:
  comm::Communicator& whole_;
};

/// One way to make steps.
struct Arm {
  train::Trainer& trainer;
  const ResidentBatch* resident = nullptr;  ///< null: it trains on the loader's batches
  /// With resident rows: its batches are taken as they come and thrown away. Null: no loader runs.
  data::Loader* loader = nullptr;
  bool together = true;  ///< the ranks agree after each step, as a training does; else none waits
};

/// Makes blocks of steps of several arms in turn, on all ranks. **Thread safety:** none.
class Turns {
 public:
  /// `global_rows`: of a loader's batch, by its index.
  Turns(comm::Control& control, std::function<std::size_t(std::uint64_t)> global_rows,
        double until_s);

  /// Each rank's mean time of a step in ms, of one block. Collective.
  std::vector<double> block(const Arm& arm);
  /// Blocks get that many steps from now on.
  void set_steps(std::size_t steps) { steps_ = steps; }
  std::size_t steps() const { return steps_; }
  std::uint64_t steps_done() const { return done_; }

  using Value = double (*)(const std::vector<double>& by_rank);
  static double slowest(const std::vector<double>& by_rank);
  static double usual(const std::vector<double>& by_rank);  ///< the lower median

  struct Side {
    const Arm& arm;
    Value value = slowest;
    double rows = 1;  ///< its step has that many times the rows: its time is divided by this
  };
  struct Compared {
    Interval difference;  ///< of `a` minus `b`, for as many rows
    double a_ms = 0, b_ms = 0;
    std::vector<double> a_ranks, b_ranks;  ///< each rank's mean time
  };
  /// A B B A ... until the interval is under 2 % of the step or the time is over. Collective.
  Compared compare(const Side& a, const Side& b, double seconds);

  bool stopped() const { return stopped_; }  ///< a stop signal came; the same on all ranks
  double left_s() const { return until_s_ - elapsed_s_; }

 private:
  double one_step(const Arm& arm);
  void agree(std::vector<double>& by_rank);

  comm::Control& control_;
  const std::function<std::size_t(std::uint64_t)> global_rows_;
  const double until_s_, began_s_;
  double elapsed_s_ = 0;  ///< rank 0's, at the end of the newest block
  std::size_t steps_ = 1;
  std::uint64_t done_ = 0;
  bool stopped_ = false;
};

/// Where a rank runs.
struct RankPost {
  std::string host;
  int process = 0;
  cluster::CpuSet cpus, cores;  ///< cores: each by one of its processors; empty: unknown
  std::string gpu;              ///< empty without one
  static void fields(auto& self, auto&& visit) {
    visit(self.host, self.process, self.cpus, self.cores, self.gpu);
  }
};

/// One examination: the arms that all interventions share, and the findings so far. Each method
/// that examines adds its findings; all ranks call the same ones.
class Examination {
 public:
  Examination(train::PreparedRun& run, comm::Control& control, const ExamineSpec& spec);
  Diagnosis all();  ///< in the order of the list in interventions.cpp

 private:
  void warm_up();
  void count_devices();
  void look_at_ranks();
  void examine_floor();
  void examine_input();
  void examine_sums();
  void examine_batch();
  void examine_precision();
  void examine_graph();
  void judge_machine();
  void add_unmeasured();

  Interval try_workers(std::size_t workers);
  std::string describe_rows() const;
  std::unique_ptr<train::Trainer> examine_norms();
  void examine_wire(train::Trainer& whole, train::Trainer& small);
  void examine_skew(train::Trainer& small, train::Trainer& silent);
  double agreement_ms();
  void judge_stolen(std::size_t rank);
  void explain(std::size_t rank, double ms);
  void judge_sharing();
  std::size_t compute_threads(std::size_t rank) const;
  double stopped_by_quota_s() const;
  Interval counted_cost(double seconds) const;

  /// A trainer with one thing changed, the same on all ranks; null where some rank's backend
  /// cannot, and then `why`. Collective.
  std::unique_ptr<train::Trainer> variant(const train::TrainerSpec& spec,
                                          comm::Communicator& communicator, std::string& why);
  /// How much shorter a step of rows in memory is by this spec than by `base`; empty as above.
  std::optional<Interval> gain_by(train::Trainer& base, const train::TrainerSpec& spec,
                                  std::string& why);
  std::unique_ptr<ResidentBatch> resident(std::size_t global_rows);
  Arm as_is() { return {.trainer = *trainer_, .loader = loader_.get()}; }
  Arm held(train::Trainer& trainer) { return {.trainer = trainer, .resident = rows_.get()}; }
  Arm alone(train::Trainer& trainer) {
    return {.trainer = trainer, .resident = rows_.get(), .together = false};
  }
  double share_of_rest();  ///< seconds for the next comparison
  bool over() const { return turns_.stopped() || turns_.left_s() <= 0; }
  std::string why_over() const { return turns_.stopped() ? "stopped" : "the time was over"; }
  void add(SlowCause finding) { diagnosis_.findings.push_back(std::move(finding)); }
  void not_measured(SlowReason reason, const std::string& what, const std::string& why) {
    add({.reason = reason, .what = what, .not_measured = why});
  }

  train::PreparedRun& run_;
  comm::Control& control_;
  Turns turns_;
  int comparisons_left_ = 8;
  comm::SilentCommunicator silent_;
  SmallSums small_;
  data::LoaderSpec loading_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<train::Trainer> trainer_;  ///< as is
  std::unique_ptr<ResidentBatch> rows_;
  std::vector<RankPost> posts_;         ///< of all ranks
  std::vector<Disturbance> disturbed_;  ///< of all ranks, on rank 0
  std::uint64_t looked_steps_ = 0;
  double looked_s_ = 0;
  Diagnosis diagnosis_;
  /// The finding about a slow rank, in the diagnosis, and that rank.
  struct Late {
    std::size_t finding = 0, rank = 0;
  };
  std::optional<Late> late_;
};

}  // namespace lockstep::study
