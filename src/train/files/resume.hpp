#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/train/run_directory.hpp"

namespace lockstep::train {

/// What a run is to begin with, the same on all ranks.
struct ResumePoint {
  std::filesystem::path checkpoint;
  model::CheckpointHeader header;
  bool same_run = false;  ///< the checkpoint lies in this run's directory: its files go on
};

/// Does what config.resume says: rank 0 looks, all ranks read and check. Nothing to resume: empty,
/// which with "auto" is no error. Collective.
std::optional<ResumePoint> find_resume_point(const config::Config& config,
                                             const RunDirectory& directory, comm::Control& control);

/// What stands now where the checkpoint was written.
struct ResumeConditions {
  std::string backend, build;
  int world = 1;
  data::DataSetInfo data;  ///< of the training set
};

/// Judges whether a run may go on from `point`. Throws InputError, naming checkpoint, keys and
/// values, when the data have another shape or other classes than the checkpoint's, or its place in
/// the middle of an epoch would mean other rows now, or the run was to stop behind a step that it
/// has passed. Returns everything else that keeps the bits from being those of an uninterrupted
/// run, each as "optim.lr (0.1, now 0.2)"; empty when they will be the same.
std::vector<std::string> judge_resume(const ResumePoint& point, const config::Config& now,
                                      const ResumeConditions& conditions);

}  // namespace lockstep::train
