#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/text/json_fields.hpp"

/// What a run used: core-hours, GPU-hours, energy and cost.
namespace lockstep::observe {

/// What one source says about a time's energy, over all machines of the run.
struct EnergyFigure {
  std::string source;  ///< "pm_counters", "RAPL", "NVML"
  std::string counts;  ///< whose energy: "processor packages"
  /// Of the machines that measured; empty: none did.
  std::optional<double> joules = std::nullopt;
  double seconds = 0;          ///< that they are of, on the machine with the fewest
  std::uint64_t machines = 0;  ///< that measured
  std::string why = {};        ///< why others, or a part of the time, were not measured

  static void fields(auto& self, auto&& visit) {
    visit("source", self.source);
    visit("counts", self.counts);
    visit.nullable("joules", self.joules);
    visit("seconds", self.seconds, Form::ms);
    visit("machines", self.machines);
    visit("why", self.why);
  }
};

/// What a run used since the record before it, or since its start's process began: with each epoch,
/// and at an end. Each second is in one of them, also of steps that a later start did again.
struct LedgerRecord {
  std::uint64_t epoch = 0, step = 0;  ///< the newest; the epoch may not be complete
  double seconds = 0;
  std::uint64_t cores = 0, gpus = 0, machines = 0;  ///< that the ranks had; cores 0: unknown
  std::optional<double> cost;                       ///< by the keys cost.*
  std::vector<EnergyFigure> energy;
  std::uint64_t time_ms = 0;

  static void fields(auto& self, auto&& visit) {
    visit.stamp("ledger", self.time_ms);
    visit("epoch", self.epoch);
    visit("until_step", self.step);
    visit("seconds", self.seconds, Form::ms);
    visit("cores", self.cores);
    visit("gpus", self.gpus);
    visit("machines", self.machines);
    visit.nullable("cost", self.cost);
    visit("energy", self.energy);
  }
};

/// By prices of an hour; empty where both are 0, or a price is of what is unknown.
std::optional<double> cost_of(const LedgerRecord& record, double per_core_hour,
                              double per_gpu_hour);

/// The sum of some records.
struct LedgerSum {
  std::uint64_t records = 0;
  double seconds = 0, core_hours = 0, gpu_hours = 0;
  std::optional<double> cost;        ///< of the records that have one
  std::vector<EnergyFigure> energy;  ///< by source; seconds are a sum, machines the fewest

  static void fields(auto& self, auto&& visit) {
    visit("seconds", self.seconds, Form::ms);
    visit("core_hours", self.core_hours);
    visit("gpu_hours", self.gpu_hours);
    visit.nullable("cost", self.cost);
    visit("energy", self.energy);
  }
};
LedgerSum sum_of(const std::vector<LedgerRecord>& records);
/// The same, up to the end of this epoch; of none where no record is of it.
LedgerSum sum_until(const std::vector<LedgerRecord>& records, std::uint64_t epoch);

/// The energy of all machines in all of a record's time, as one number, and whose it is:
/// "pm_counters", which contains all else, "RAPL", "NVML" or "RAPL+NVML". A source that missed a
/// machine or a part of the time is left out; without another there are no joules.
struct WholeEnergy {
  std::optional<double> joules;
  std::string of;
};
WholeEnergy whole_energy(const LedgerRecord& record);

/// "12.3 kJ": four digits, powers of 1000.
std::string joules_text(double joules);

/// "12.3 kJ (RAPL: processor packages)", "not measured: WHY", or both where only some of `seconds`
/// or of the machines were measured.
std::string energy_text(const EnergyFigure& figure, double seconds, std::uint64_t machines);

/// "used 0:42, 0.023 core-hours, cost 0.21; energy 12.3 kJ (...); to the best validation 0:21,
/// ...": one line for all of a run. `best_epoch`: 0 without a validation.
std::string ledger_line(const std::vector<LedgerRecord>& records, std::uint64_t best_epoch);

}  // namespace lockstep::observe
