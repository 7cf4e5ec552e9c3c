#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// What one source says about a time. Without `joules` nothing was measured, and `why` says why.
struct EnergyUse {
  std::string source;  ///< "pm_counters", "RAPL", "NVML"
  std::string counts;  ///< whose energy: "processor packages"
  std::optional<double> joules;
  double seconds = 0;  ///< that the joules are of
  std::string why;     ///< also: why only a part of the time was measured

  static void fields(auto& self, auto&& visit) {
    visit(self.source, self.counts, self.joules, self.seconds, self.why);
  }
};

/// Measures what this machine consumes, also for other users of it: by Cray's pm_counters where
/// they are, else by RAPL; and its ranks' GPUs by NVML. One process of a machine has one, or its
/// energy would be counted twice. A thread looks at the counters now and then, because they start
/// again after some minutes of load.
/// **Thread safety:** any thread.
class EnergyMeter {
 public:
  struct Spec {
    std::filesystem::path root = "/";  ///< precedes /sys
    std::vector<std::string> gpus;     ///< PCI bus ids of all ranks on this machine, each once
    std::function<void()> enter = {};  ///< called first on the thread
    double every_s = 10;
  };
  explicit EnergyMeter(Spec spec);
  ~EnergyMeter();
  /// Since the call before, or since the meter was made: one of each source, or of the one that
  /// would be asked.
  std::vector<EnergyUse> take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What Slurm's accounting says that a job has consumed, on all of its nodes and with all that it
/// did: another figure than what a run's own counters measured.
struct SlurmEnergy {
  std::optional<double> joules;
  std::string why;  ///< without joules: why there are none
};

/// Asks sacct, for 10 s at most. `job`: as by slurm_job().
SlurmEnergy slurm_energy(const std::string& job);

/// Of the state and the joules of each time that the job was started: of all of them together. 0
/// joules are a cluster that does not measure. Pure.
SlurmEnergy read_slurm_energy(const std::vector<std::vector<std::string>>& starts);

}  // namespace lockstep::cluster
