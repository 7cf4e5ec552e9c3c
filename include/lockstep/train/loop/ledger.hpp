#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/cluster/energy/energy_meter.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/observe/ledger.hpp"
#include "lockstep/train/run.hpp"

namespace lockstep::train {

/// Each once, of all ranks.
struct Hardware {
  std::uint64_t cores = 0, gpus = 0, machines = 0;  ///< cores 0: unknown
};

/// What the run uses. The first rank of each machine measures its energy, so that nothing is
/// counted twice; rank 0 adds up. All ranks have one.
/// **Thread safety:** none; the main thread uses it.
class Ledger {
 public:
  /// Begins with the process's start; energy from now on. Collective.
  Ledger(const RunSpec& spec, comm::Control& control);
  const Hardware& hardware() const { return hardware_; }

  /// Takes what earlier starts of the run have recorded. Throws InputError when the file cannot be
  /// read.
  void add_earlier(const std::filesystem::path& metrics);
  /// What was used since the last record. Collective; complete on rank 0.
  observe::LedgerRecord record(std::uint64_t epoch, std::uint64_t step);
  /// The same by this rank alone: other ranks may be lost.
  observe::LedgerRecord record_alone(std::uint64_t epoch, std::uint64_t step);

  /// On rank 0, of all starts.
  const std::vector<observe::LedgerRecord>& records() const { return records_; }

 private:
  std::vector<cluster::EnergyUse> take_energy();
  observe::LedgerRecord add_up(const std::vector<std::vector<cluster::EnergyUse>>& machines,
                               std::uint64_t epoch, std::uint64_t step);

  const RunSpec& spec_;
  comm::Control& control_;
  Hardware hardware_;
  double since_s_;
  std::unique_ptr<cluster::EnergyMeter> meter_;  ///< on the first rank of a machine
  std::vector<observe::LedgerRecord> records_;
};

}  // namespace lockstep::train
