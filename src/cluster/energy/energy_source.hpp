#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// What one source counted since it was asked before.
struct Consumed {
  double joules = 0;
  double seconds = 0;  ///< that the joules are of; 0: nothing is known of this time
  std::string lost;    ///< why some of the time is not counted; empty: it is all counted
};

/// One way to learn what this machine consumes. Times are those of now_s(), and never go back.
/// **Thread safety:** one caller at a time.
class EnergySource {
 public:
  virtual ~EnergySource() = default;
  virtual std::string name() const = 0;      ///< "RAPL"
  virtual std::string counts() const = 0;    ///< whose energy: "processor packages"
  virtual Consumed advance(double now) = 0;  ///< since the call before, or since it was opened
};

/// A source, or why there is none.
struct OpenedSource {
  std::unique_ptr<EnergySource> source;
  std::string why;
};

/// Cray's counters of the whole node, below `root`/sys/cray/pm_counters.
OpenedSource open_pm_counters(const std::filesystem::path& root, double now);

/// The processor packages, below `root`/sys/class/powercap.
OpenedSource open_rapl(const std::filesystem::path& root, double now);

/// These GPUs, by NVML, which is loaded from `library`. `pci_bus_ids`: each once, at least one.
OpenedSource open_nvml(const std::vector<std::string>& pci_bus_ids, double now,
                       const std::string& library = "libnvidia-ml.so.1");

}  // namespace lockstep::cluster
