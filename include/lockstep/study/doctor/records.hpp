#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

/// What a run's records say of the steps of its newest start.
struct NewestStart {
  observe::StartRecord start;
  std::vector<observe::RanksRecord> ranks;  ///< of each epoch; some
  std::vector<observe::EpochRecord> epochs;
  double checkpoints_ms = 0;   ///< that the run waited for, over all its steps
  std::uint64_t steps = 0;     ///< of `ranks`
  std::size_t norm_ranks = 1;  ///< model-options.norm-ranks, if the configuration can be read
};

/// Reads only. Throws InputError when `run` is not a run's folder, or has no record of an epoch's
/// ranks yet.
NewestStart read_newest_start(const std::filesystem::path& run);

/// The configuration of a run's folder, as its newest start followed it. Throws InputError naming
/// the file that is missing or damaged.
config::Config read_config(const std::filesystem::path& run);

/// What these records of `run` say about the same reasons; what they cannot say is not measured.
/// Intervals span the epochs.
Diagnosis diagnose_records(const std::filesystem::path& run, const NewestStart& records);

}  // namespace lockstep::study
