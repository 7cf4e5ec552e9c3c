#pragma once

// How steps of a run went, as its files have it: what a simulation of other steps begins with.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/observe/records.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

struct RecordedBucket {
  std::size_t floats = 0;
  double full_at = 0;  ///< which share of the last micro-batch's backward is over when it is full
};

struct RecordedSteps {
  std::string basis;                    ///< "the means of 3 epochs"
  std::string not_known;                ///< why there are none; else empty
  std::vector<std::string> notes;       ///< files that are left out, and why
  std::uint64_t batch = 0;              ///< rows of a step, over all ranks
  std::size_t micro_batches = 1;        ///< of a step
  std::vector<RecordedBucket> buckets;  ///< in their order
  /// Single steps, or means of many; of each rank.
  std::vector<std::vector<observe::StepTimes>> steps;
  /// By step and bucket: from when all ranks have filled it, and the one before has arrived, to its
  /// sum. Empty: the steps are means, and this was not measured.
  std::vector<std::vector<double>> moves_ms;
  bool traced() const { return !moves_ms.empty(); }
};

/// A file that is missing or damaged, and a way of training that has no such steps, are reasons in
/// `not_known`. REQUIRES: the records of this run.
RecordedSteps read_recorded_steps(const std::filesystem::path& run, const NewestStart& records);

/// Steps and buckets from a timeline that train::StepTrace wrote for `start`, into `found`. Returns
/// why it does not serve; empty when it does. Throws InputError naming the file when it is damaged.
std::string read_trace(const std::filesystem::path& file, const observe::StartRecord& start,
                       RecordedSteps& found);

}  // namespace lockstep::study
