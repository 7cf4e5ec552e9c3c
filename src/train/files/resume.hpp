#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::train {

/// The checkpoint that a run resumes from, the same on all ranks.
struct ResumePoint {
  std::filesystem::path checkpoint;
  model::CheckpointHeader header;
  bool same_run = false;    ///< it is in this run's directory: its files continue
  FileStamp verified = {};  ///< when this rank read it whole
};

/// Finds the checkpoint that config.resume asks for: rank 0 looks, all ranks read and check. Empty
/// when there is nothing to resume, which is not an error with "auto". Collective.
std::optional<ResumePoint> find_resume_point(const config::Config& config,
                                             const RunDirectory& directory, comm::Control& control);

/// The configuration that the checkpoint was written with.
config::Config written_config(const ResumePoint& point);

/// What this start has in place of the conditions that the checkpoint was written under.
struct ResumeConditions {
  std::string backend, build;
  int world = 1, replicas = 1;
  data::DataSetInfo data;      ///< of the training set
  std::string placement = {};  ///< Nodes::placement()
  bool on_gpus = false;        ///< the library that adds there looks at the placement
};

/// Judges whether a run may resume from `point`. Throws InputError, naming checkpoint, keys and
/// values, when the data have another shape or other classes than the checkpoint's, or its place in
/// the middle of an epoch would mean other rows now, or stop-after is not later than its step.
/// Returns all other changes that alter the bits of an uninterrupted run, each as "optim.lr (0.1,
/// now 0.2)"; empty when the bits will be the same.
std::vector<std::string> judge_resume(const ResumePoint& point, const config::Config& now,
                                      const ResumeConditions& conditions);

/// What to say where the next step's learning rate is another one than without this start's
/// changes: "the learning rate goes from 0.0017 to 0.05: cosine now ends with epoch 6, not 3"; else
/// empty. `steps_per_epoch`: of this start. Pure.
std::string say_rate_jump(const ResumePoint& point, const config::Config& now,
                          std::uint64_t steps_per_epoch);

}  // namespace lockstep::train
