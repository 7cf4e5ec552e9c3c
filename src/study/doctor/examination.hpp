#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/doctor/examine.hpp"
#include "study/doctor/arms.hpp"
#include "study/doctor/machine_state.hpp"

namespace lockstep::study {

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
