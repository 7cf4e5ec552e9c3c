#pragma once

#include "lockstep/comm/control.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"
#include "lockstep/train/prepared_run.hpp"

namespace lockstep::study {

struct ExamineSpec {
  double seconds = 150;  ///< for all measurements together
};

/// Measures by intervention why the training would be slow: the same ranks, rows and programs, with
/// one thing changed at a time, in turn with the training as it is. Trains on scratch parameters
/// with a learning rate of 0, writes nothing, and ends early when a stop signal has come. Complete
/// on rank 0. Collective. A device that runs later than the host makes one step at a time here.
Diagnosis examine(train::PreparedRun& run, comm::Control& control, const ExamineSpec& spec);

}  // namespace lockstep::study
