#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/files/background_writer.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/watched_communicator.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/observe/trace/rank_trace.hpp"
#include "lockstep/train/run.hpp"

namespace lockstep::train {

/// The timeline of the steps that the key `trace` names, on all ranks. It watches what the main
/// thread does and the collectives that go through watch(); before the first of these steps and
/// after the last one, the ranks compare their clocks with rank 0's, and rank 0 then gathers all
/// and writes it in the background. What cannot be written is one warning, and training continues.
/// Every rank has one and makes the same calls; without the key it does nothing.
/// **Thread safety:** none; the main thread uses it.
class StepTrace final : comm::ActivityObserver, comm::CollectiveObserver {
 public:
  /// The references must outlive this, and this must outlive what uses watch().
  StepTrace(const RunSpec& spec, const device::Device& device, comm::Control& control);
  ~StepTrace() override;
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// The communicator for gradients. Those of a GPU run later than the host's calls, which is all
  /// that could be watched: they are left as they are.
  comm::Communicator& watch(comm::Communicator& reducing);
  /// From now on steps count. `done`: steps that were made before; `planned`: those of the whole
  /// run. Warns where the range is beyond the run.
  void begin(const std::filesystem::path& run, std::uint64_t done, std::uint64_t planned);
  /// The run has ended, also in the middle of the range. Collective; waits for the files.
  void end();

 private:
  void changed(const comm::Activity& now) override;
  bool watches() const override { return recording_; }
  double clock_us() const override { return spec_.trace_clock(); }
  void ended(comm::WatchedCollective one) override;

  void begin_step(std::uint64_t step);
  void start();
  void close_spans(double now_us);
  void finish();
  observe::ClockReading read_clock();
  void write(const std::vector<observe::RankTrace>& ranks);
  void look_at_files(bool wait);

  const RunSpec& spec_;
  const device::Device& device_;
  comm::Control& control_;
  std::unique_ptr<comm::Communicator> watched_;
  std::filesystem::path folder_;
  bool follows_ = false;    ///< what the main thread does
  bool recording_ = false;  ///< in a step of the range
  bool comparing_ = false;  ///< clocks: what the ranks say meanwhile belongs to no step
  bool recorded_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t unix_ms_ = 0;  ///< of the first reading
  observe::RankTrace mine_;
  std::string said_;  ///< in the log once the files are on the disk
  std::optional<BackgroundWriter> writer_;
};

}  // namespace lockstep::train
