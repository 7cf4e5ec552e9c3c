#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::study {

/// One rank's part of a batch that stays in memory, filled from rows that a loader brought.
struct ResidentBatch {
  ResidentBatch(const data::Batch& sample, std::size_t row_bytes, std::size_t global_rows, int rank,
                int world, device::Device& device);
  device::PinnedBuffer images;
  std::vector<data::Target> targets;
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

}  // namespace lockstep::study
