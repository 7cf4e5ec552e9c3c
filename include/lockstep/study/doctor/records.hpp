#pragma once

#include <filesystem>

#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

/// What a run's own records say about the same reasons; what they cannot say is not measured. Reads
/// only. Intervals span the epochs of the newest start. Throws InputError when `run` is not a run's
/// folder, or has no record of an epoch's ranks yet.
Diagnosis diagnose_records(const std::filesystem::path& run);

}  // namespace lockstep::study
